//! `nexus admin …`: provisioning and observation over the operator plane (`operating.md` §4).

mod args;

pub use self::args::{
    AccessArg, Accounts, Command, ExecutorKindArg, Executors, Grants, MemberKindArg, Members,
    ScopeArg, Sweeper, Workspaces,
};
use super::output::{fields, more, table, text};
use super::{Context, Failure};
use crate::client::answers::{Account, Executor, Member, Workspace};
use crate::client::words::{Access, AssignmentScope, ExecutorKind, MemberKind};
use crate::client::{Client, NewExecutor, NewMember};

/// Does it.
///
/// # Errors
/// [`Failure`].
pub async fn run(context: &Context, command: Command) -> Result<(), Failure> {
    let client = context.operator()?;
    match command {
        Command::Accounts(command) => accounts(context, &client, command).await,
        Command::Workspaces(command) => workspaces(context, &client, command).await,
        Command::Members(command) => members(context, &client, command).await,
        Command::Grants(command) => grants(context, &client, command).await,
        Command::Executors(command) => executors(context, &client, command).await,
        Command::Sweeper(command) => sweeper(context, &client, command).await,
        Command::Replicas => replicas(context, &client).await,
    }
}

async fn accounts(context: &Context, client: &Client, command: Accounts) -> Result<(), Failure> {
    let answer = match command {
        Accounts::Create { name } => client.create_account(&name).await?,
        Accounts::Show { account } => client.account(&account).await?,
        Accounts::Suspend { account } => client.suspend_account(&account).await?,
        Accounts::Resume { account } => client.resume_account(&account).await?,
        Accounts::List { after } => {
            let answer = client.list_accounts(after.as_deref()).await?;
            return context.out.answer(&answer, |page| {
                let rows = page.items.iter().map(|a| {
                    [
                        Some(a.public_id.clone()),
                        Some(a.name.clone()),
                        text(&a.status),
                    ]
                });
                table(["account", "name", "status"], rows) + &more(page.next_after.as_deref())
            });
        }
    };
    context.out.answer(&answer, |a: &Account| {
        fields(&[
            ("account", Some(a.public_id.clone())),
            ("name", Some(a.name.clone())),
            ("status", text(&a.status)),
            ("created", text(&a.created_at)),
        ])
    })
}

async fn workspaces(
    context: &Context,
    client: &Client,
    command: Workspaces,
) -> Result<(), Failure> {
    let answer = match command {
        Workspaces::Create { account, name } => client.create_workspace(&account, &name).await?,
        Workspaces::Show { workspace } => client.workspace(&workspace).await?,
        Workspaces::List { account, after } => {
            let answer = client
                .list_workspaces(account.as_deref(), after.as_deref())
                .await?;
            return context.out.answer(&answer, |page| {
                let rows = page.items.iter().map(|w| {
                    [
                        Some(w.public_id.clone()),
                        Some(w.name.clone()),
                        w.account_public_id.clone(),
                    ]
                });
                table(["workspace", "name", "account"], rows) + &more(page.next_after.as_deref())
            });
        }
    };
    context.out.answer(&answer, |w: &Workspace| {
        fields(&[
            ("workspace", Some(w.public_id.clone())),
            ("name", Some(w.name.clone())),
            ("account", w.account_public_id.clone()),
            ("created", text(&w.created_at)),
        ])
    })
}

fn member_fields(m: &Member, token: Option<&str>) -> String {
    fields(&[
        ("member", Some(m.public_id.clone())),
        ("kind", text(&m.kind)),
        ("handle", Some(m.handle.clone())),
        ("display name", m.display_name.clone()),
        ("controlled by", m.controlling_human_public_id.clone()),
        ("account", m.account_public_id.clone()),
        ("status", text(&m.status)),
        ("token", token.map(str::to_owned)),
    ])
}

async fn members(context: &Context, client: &Client, command: Members) -> Result<(), Failure> {
    let answer = match command {
        Members::Create {
            account,
            kind,
            handle,
            display_name,
            controlling_human,
        } => {
            let new = NewMember {
                account_public_id: account,
                kind: match kind {
                    MemberKindArg::Human => MemberKind::Human,
                    MemberKindArg::Agent => MemberKind::Agent,
                },
                handle,
                display_name,
                controlling_human_public_id: controlling_human,
            };
            let answer = client.create_member(&new).await?;
            return context
                .out
                .answer(&answer, |c| member_fields(&c.member, Some(&c.token)));
        }
        Members::Rotate { member } => {
            let answer = client.rotate_member(&member).await?;
            return context
                .out
                .answer(&answer, |c| member_fields(&c.member, Some(&c.token)));
        }
        Members::List { account, after } => {
            let answer = client
                .list_members(account.as_deref(), after.as_deref())
                .await?;
            return context.out.answer(&answer, |page| {
                let rows = page.items.iter().map(|m| {
                    [
                        Some(m.public_id.clone()),
                        text(&m.kind),
                        Some(m.handle.clone()),
                        text(&m.status),
                    ]
                });
                let headings = ["member", "kind", "handle", "status"];
                table(headings, rows) + &more(page.next_after.as_deref())
            });
        }
        Members::Show { member } => client.member(&member).await?,
        Members::Suspend { member } => client.suspend_member(&member).await?,
        Members::Resume { member } => client.resume_member(&member).await?,
    };
    context.out.answer(&answer, |m| member_fields(m, None))
}

async fn grants(context: &Context, client: &Client, command: Grants) -> Result<(), Failure> {
    match command {
        Grants::Set {
            workspace,
            member,
            access,
        } => {
            let access = match access {
                AccessArg::Read => Access::Read,
                AccessArg::Write => Access::Write,
            };
            let answer = client.grant(&workspace, &member, access.clone()).await?;
            context
                .out
                .answer(&answer, |_| format!("{member}: {access}"))
        }
        Grants::Remove { workspace, member } => {
            let answer = client.revoke_grant(&workspace, &member).await?;
            context.out.answer(&answer, |()| format!("{member}: none"))
        }
        Grants::List { workspace, after } => {
            let answer = client.list_grants(&workspace, after.as_deref()).await?;
            context.out.answer(&answer, |page| {
                let rows = page
                    .items
                    .iter()
                    .map(|g| [g.member_public_id.clone(), text(&g.access)]);
                table(["member", "access"], rows) + &more(page.next_after.as_deref())
            })
        }
    }
}

fn executor_fields(e: &Executor, token: Option<&str>) -> String {
    fields(&[
        ("executor", Some(e.public_id.clone())),
        ("kind", Some(e.kind.to_string())),
        ("display name", e.display_name.clone()),
        ("status", Some(e.status.to_string())),
        ("scope", text(&e.assignment_scope)),
        ("registration", e.registration_identifier.clone()),
        ("epoch", text(&e.credential_epoch)),
        ("presence", text(&e.presence)),
        ("last seen", text(&e.last_seen_at)),
        ("token", token.map(str::to_owned)),
    ])
}

async fn executors(context: &Context, client: &Client, command: Executors) -> Result<(), Failure> {
    let answer = match command {
        Executors::Create {
            kind,
            manager,
            agent,
            registration,
            scope,
            display_name,
        } => {
            let new = NewExecutor {
                kind: match kind {
                    ExecutorKindArg::AgentApplication => ExecutorKind::AgentApplication,
                    ExecutorKindArg::Runner => ExecutorKind::Runner,
                    ExecutorKindArg::ToolProvider => ExecutorKind::ToolProvider,
                },
                manager_public_id: manager,
                agent_public_id: agent,
                registration_identifier: registration,
                assignment_scope: scope.map(|scope| match scope {
                    ScopeArg::UserPrivate => AssignmentScope::UserPrivate,
                    ScopeArg::AccountWide => AssignmentScope::AccountWide,
                }),
                display_name,
            };
            let answer = client.create_executor(&new).await?;
            return context.out.answer(&answer, |c| {
                executor_fields(&c.executor, Some(&c.credential.token))
            });
        }
        Executors::Rotate { executor } => {
            let answer = client.rotate_executor(&executor).await?;
            return context.out.answer(&answer, |c| {
                executor_fields(&c.executor, Some(&c.credential.token))
            });
        }
        Executors::List { account, after } => {
            let answer = client
                .list_executors(account.as_deref(), after.as_deref())
                .await?;
            return context.out.answer(&answer, |page| {
                let rows = page.items.iter().map(|e| {
                    [
                        Some(e.public_id.clone()),
                        Some(e.kind.to_string()),
                        e.display_name.clone(),
                        Some(e.status.to_string()),
                        text(&e.presence),
                    ]
                });
                let headings = ["executor", "kind", "name", "status", "presence"];
                table(headings, rows) + &more(page.next_after.as_deref())
            });
        }
        Executors::Show { executor } => client.executor(&executor).await?,
        Executors::Revoke { executor } => client.revoke_executor(&executor).await?,
        Executors::Shutdown { executor } => client.shutdown_executor(&executor).await?,
    };
    context.out.answer(&answer, |e| executor_fields(e, None))
}

async fn sweeper(context: &Context, client: &Client, command: Sweeper) -> Result<(), Failure> {
    match command {
        Sweeper::Show => {
            let answer = client.sweeper().await?;
            context.out.answer(&answer, |state| {
                let leases = state.leases.iter().map(|l| {
                    [
                        Some(l.name.clone()),
                        l.holder.clone(),
                        text(&l.token),
                        text(&l.expires_at),
                    ]
                });
                let sweeps = state.sweeps.iter().map(|s| {
                    [
                        Some(s.name.clone()),
                        text(&s.last_run_at),
                        text(&s.rows),
                        text(&s.lag_seconds),
                    ]
                });
                table(["lease", "holder", "fence", "expires"], leases)
                    + "\n"
                    + &table(["sweep", "last run", "rows", "lag s"], sweeps)
            })
        }
        Sweeper::Run { sweep } => {
            let answer = client.run_sweep(&sweep).await?;
            context
                .out
                .answer(&answer, |run| format!("{}: {} rows", run.sweep, run.rows))
        }
    }
}

async fn replicas(context: &Context, client: &Client) -> Result<(), Failure> {
    let answer = client.replicas().await?;
    context.out.answer(&answer, |replicas| {
        let rows = replicas.iter().map(|r| {
            [
                Some(r.id.clone()),
                r.version.clone(),
                Some(r.roles.join(",")),
                text(&r.heartbeat_at),
                Some(if r.draining { "draining" } else { "" }.to_owned()),
            ]
        });
        table(["replica", "version", "roles", "heartbeat", "state"], rows)
    })
}
