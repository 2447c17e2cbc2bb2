//! Who the routed calls of an envelope are for: looked up before it is compiled, by create and by
//! append alike.

use crate::app::App;
use crate::domain::{AccountId, PublicId};
use crate::engine::compile::{Envelope, Facts};
use crate::engine::eligibility::PrincipalFacts;
use crate::store;
use crate::store::runs::Runner;

/// The runners that the envelope's routes name, and the default one; and which of the named tools
/// each announces.
///
/// # Errors
/// A fault.
pub(super) async fn runners(
    app: &App,
    account: AccountId,
    principal: &PrincipalFacts,
    envelope: &Envelope,
    default_runner: Option<PublicId>,
) -> Result<Vec<Runner>, store::Error> {
    let routes = &envelope.wants().routes;
    let mut ids: Vec<PublicId> = routes.iter().filter_map(|(id, _)| *id).collect();
    ids.extend(default_runner);
    // A name that no executor can announce is not asked for: the database cannot even read U+0000.
    let tools = routes.iter().map(|(_, tool)| tool.clone());
    let tools: Vec<String> = tools.filter(|tool| !tool.contains('\0')).collect();
    app.store.runners(account, principal, &ids, &tools).await
}

/// Tells the compiler what is known of each routed call; `facts` holds the default runner.
pub(super) fn tell(facts: &mut Facts, envelope: &Envelope, runners: &[Runner]) {
    for (target, tool) in &envelope.wants().routes {
        let target = target.or(facts.default_runner);
        let runner = runners.iter().find(|r| Some(r.public_id) == target);
        if let Some(runner) = runner {
            let at = (runner.public_id, tool.clone());
            facts.routes.insert(at, runner.verdict(tool));
        }
    }
}
