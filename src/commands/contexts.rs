//! The frozen contexts of calls that may author child work: what their Runners announce is looked up
//! once, when the calls are accepted (`operations.md` §5.1).

use std::collections::BTreeSet;

use super::discover;
use crate::app::App;
use crate::domain::json::Value;
use crate::domain::{AccountId, PublicId};
use crate::engine::eligibility::PrincipalFacts;
use crate::engine::operation::context::{Announced, AnnouncedTool, Known};
use crate::store;

/// What the contexts of an envelope's calls must know: `steps` is what was written. Asks nothing when
/// no call has one.
///
/// # Errors
/// A fault.
pub(super) async fn known(
    app: &App,
    account: AccountId,
    principal: &PrincipalFacts,
    default_runner: Option<PublicId>,
    steps: &Value,
) -> Result<Known, store::Error> {
    let mut named: BTreeSet<PublicId> = default_runner.into_iter().collect();
    let mut has_context = false;
    named_runners(steps, &mut named, &mut has_context);
    if !has_context {
        return Ok(Known::default());
    }
    Ok(Known {
        default_runner,
        runners: announced(app, account, principal, named).await?,
    })
}

/// The Runners that are named anywhere, and whether any call has a context.
fn named_runners(value: &Value, named: &mut BTreeSet<PublicId>, has_context: &mut bool) {
    let mut todo = vec![value];
    while let Some(value) = todo.pop() {
        match value {
            Value::Array(items) => todo.extend(items),
            Value::Object(members) => {
                *has_context |= members.contains_key("model_defaults");
                let one = members.get("runner_executor_public_id").into_iter();
                let many = members.get("runner_executor_public_ids");
                let many = many.and_then(Value::as_array).unwrap_or_default();
                let ids = one
                    .chain(many)
                    .filter_map(|id| id.as_str()?.parse::<PublicId>().ok());
                named.extend(ids);
                todo.extend(members.values());
            }
            _ => {}
        }
    }
}

async fn announced(
    app: &App,
    account: AccountId,
    principal: &PrincipalFacts,
    ids: BTreeSet<PublicId>,
) -> Result<Vec<Announced>, store::Error> {
    let ids: Vec<PublicId> = ids.into_iter().collect();
    let machines = discover::eligible(app, account, principal, &ids).await?;
    let machines = machines.into_iter().map(|machine| {
        let documents = machine.announced.documents.value();
        let tools = machine.tools.into_iter().map(|tool| AnnouncedTool {
            name: tool.name,
            description: tool.description,
            input_schema: tool.input_schema.map(|schema| schema.value()),
        });
        Announced {
            public_id: machine.announced.executor.public_id,
            display_name: machine.announced.executor.display_name,
            environment: machine.announced.environment.value(),
            documents: documents
                .as_array()
                .map(<[Value]>::to_vec)
                .unwrap_or_default(),
            tools: tools.collect(),
        }
    });
    Ok(machines.collect())
}
