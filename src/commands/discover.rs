//! The machines that a member may route work to (`executor.md` §4, "Discovery").
//!
//! A read; it goes through here and not straight from handler to store because eligibility is the
//! engine's one rule. Never filtered by presence.

use crate::app::App;
use crate::domain::announcement::Tool;
use crate::domain::words::{ExecutorKind, Standing};
use crate::domain::{AccountId, ExecutorId, MemberId, PublicId};
use crate::engine::eligibility::{ExecutorFacts, PrincipalFacts, is_eligible};
use crate::store::credentials::MemberCaller;
use crate::store::executors::{self, Announced, Executor};
use crate::store::page::Page;
use crate::store::{Error, members, served_tools};

/// A machine with all that it announced.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The executor, its environment and documents.
    pub announced: Announced,
    /// Its tools, in the announced order.
    pub tools: Vec<Tool>,
}

/// What eligibility is judged on.
fn facts(executor: &Executor) -> ExecutorFacts {
    let is_application = executor.kind == ExecutorKind::AgentApplication;
    let owner = executor.owner.0;
    ExecutorFacts {
        kind: executor.kind,
        status: executor.status,
        has_usable_token: executor.has_usable_token,
        shutting_down: executor.shutdown_at.is_some(),
        scope: executor.assignment_scope,
        manager: (!is_application).then_some(owner),
        agent: is_application.then_some(owner),
        agent_active: is_application && executor.owner_status == Standing::Active,
    }
}

async fn principal(app: &App, caller: &MemberCaller) -> Result<PrincipalFacts, Error> {
    let member = members::by_public_id(&app.store, caller.public_id).await?;
    let human: Option<MemberId> = member.and_then(|m| m.controlling_human).map(|h| h.0);
    Ok(PrincipalFacts {
        member: caller.id,
        kind: caller.kind,
        controlling_human: human,
        declaring_agent: None,
    })
}

/// One page of the machines of that kind that are eligible for the caller: at most `page.limit`.
/// Gives the id of the last row looked at when there may be more.
///
/// # Errors
/// A fault of the database.
pub async fn list(
    app: &App,
    caller: &MemberCaller,
    kind: ExecutorKind,
    mut page: Page,
) -> Result<(Vec<Machine>, Option<PublicId>), Error> {
    let principal = principal(app, caller).await?;
    let wanted = usize::try_from(page.limit).unwrap_or(usize::MAX);
    let mut found: Vec<Announced> = Vec::new();
    let mut next = None;
    // Each fetch is a whole page of rows: most accounts are done after one.
    'pages: loop {
        let rows = executors::list_announced(&app.store, caller.account, kind, &page).await?;
        let is_last = rows.len() < wanted;
        for row in rows {
            let key = (row.executor.account, row.executor.id.0);
            let public_id = row.executor.public_id;
            page.after = Some(key);
            if !is_eligible(&facts(&row.executor), &principal) {
                continue;
            }
            found.push(row);
            if found.len() == wanted {
                next = Some(public_id);
                break 'pages;
            }
        }
        if is_last {
            break;
        }
    }
    Ok((with_tools(app, caller.account, found).await?, next))
}

/// The machine of that id, if it is eligible for the caller. Applications are no machines.
///
/// # Errors
/// A fault of the database.
pub async fn read(
    app: &App,
    caller: &MemberCaller,
    id: PublicId,
) -> Result<Option<Machine>, Error> {
    let row = executors::announced(&app.store, caller.account, id)
        .await?
        .filter(|row| row.executor.kind != ExecutorKind::AgentApplication);
    let Some(row) = row else {
        return Ok(None);
    };
    let principal = principal(app, caller).await?;
    if !is_eligible(&facts(&row.executor), &principal) {
        return Ok(None);
    }
    let mut machines = with_tools(app, caller.account, vec![row]).await?;
    Ok(machines.pop())
}

/// Those of these machines that may work for that principal.
///
/// # Errors
/// A fault of the database.
pub(super) async fn eligible(
    app: &App,
    account: AccountId,
    principal: &PrincipalFacts,
    ids: &[PublicId],
) -> Result<Vec<Machine>, Error> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows = executors::announced_of(&app.store, account, ids).await?;
    rows.retain(|row| {
        row.executor.kind != ExecutorKind::AgentApplication
            && is_eligible(&facts(&row.executor), principal)
    });
    with_tools(app, account, rows).await
}

/// Puts the tools of all rows beside them, read in one statement.
async fn with_tools(
    app: &App,
    account: AccountId,
    rows: Vec<Announced>,
) -> Result<Vec<Machine>, Error> {
    let ids: Vec<ExecutorId> = rows.iter().map(|row| row.executor.id).collect();
    let mut tools = served_tools::of_executors(&app.store, account, &ids).await?;
    Ok(rows
        .into_iter()
        .map(|announced| {
            let id = announced.executor.id;
            let (own, rest) = tools.drain(..).partition(|(of, _)| *of == id);
            tools = rest;
            Machine {
                announced,
                tools: own.into_iter().map(|(_, tool): (_, Tool)| tool).collect(),
            }
        })
        .collect())
}
