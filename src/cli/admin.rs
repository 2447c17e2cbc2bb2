//! `nexus admin …`: provisioning and observation over the operator plane (`operating.md` §4).

use clap::{Subcommand, ValueEnum};

use super::output::{fields, more, table, text};
use super::{Context, Failure};
use crate::client::answers::{Account, Executor, Member, Workspace};
use crate::client::words::{Access, AssignmentScope, ExecutorKind, MemberKind};
use crate::client::{Client, NewExecutor, NewMember, RetryPolicy};

/// What to provision or see.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Accounts
    #[command(subcommand)]
    Accounts(Accounts),
    /// Workspaces
    #[command(subcommand)]
    Workspaces(Workspaces),
    /// Humans and agents
    #[command(subcommand)]
    Members(Members),
    /// Who may do what in a workspace
    #[command(subcommand)]
    Grants(Grants),
    /// Delivery addresses
    #[command(subcommand)]
    Executors(Executors),
    /// The sweeper's leases and sweeps
    #[command(subcommand)]
    Sweeper(Sweeper),
    /// The replicas that are there
    Replicas,
}

/// Accounts.
#[derive(Debug, Subcommand)]
pub enum Accounts {
    /// Makes one
    Create {
        /// Its name
        #[arg(long)]
        name: String,
    },
    /// Lists them
    List {
        /// Where the page begins
        #[arg(long)]
        after: Option<String>,
    },
    /// Shows one
    Show {
        /// The account
        account: String,
    },
    /// Suspends one: its live runs are stopped
    Suspend {
        /// The account
        account: String,
    },
    /// Lets a suspended one act again
    Resume {
        /// The account
        account: String,
    },
}

/// Workspaces.
#[derive(Debug, Subcommand)]
pub enum Workspaces {
    /// Makes one
    Create {
        /// The account
        #[arg(long)]
        account: String,
        /// Its name
        #[arg(long)]
        name: String,
    },
    /// Lists them
    List {
        /// Only this account's
        #[arg(long)]
        account: Option<String>,
        /// Where the page begins
        #[arg(long)]
        after: Option<String>,
    },
    /// Shows one
    Show {
        /// The workspace
        workspace: String,
    },
}

/// What a member is.
#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum MemberKindArg {
    /// A person
    Human,
    /// An agent
    Agent,
}

/// Members.
#[derive(Debug, Subcommand)]
pub enum Members {
    /// Makes one; prints its token this once
    Create {
        /// The account
        #[arg(long)]
        account: String,
        /// What it is
        #[arg(long)]
        kind: MemberKindArg,
        /// Its handle, unique in the account
        #[arg(long)]
        handle: String,
        /// What people read
        #[arg(long)]
        display_name: Option<String>,
        /// The human an agent answers to
        #[arg(long)]
        controlling_human: Option<String>,
    },
    /// Lists them
    List {
        /// Only this account's
        #[arg(long)]
        account: Option<String>,
        /// Where the page begins
        #[arg(long)]
        after: Option<String>,
    },
    /// Shows one
    Show {
        /// The member
        member: String,
    },
    /// Mints a new token, this once; earlier ones are dead
    Rotate {
        /// The member
        member: String,
    },
    /// Suspends one
    Suspend {
        /// The member
        member: String,
    },
    /// Lets a suspended one act again
    Resume {
        /// The member
        member: String,
    },
}

/// What a grant allows.
#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum AccessArg {
    /// Reads
    Read,
    /// Reads and every command
    Write,
}

/// Grants.
#[derive(Debug, Subcommand)]
pub enum Grants {
    /// Gives a member access, or changes it
    Set {
        /// The workspace
        workspace: String,
        /// The member
        member: String,
        /// What it allows
        access: AccessArg,
    },
    /// Takes it away
    Remove {
        /// The workspace
        workspace: String,
        /// The member
        member: String,
    },
    /// Lists a workspace's
    List {
        /// The workspace
        workspace: String,
        /// Where the page begins
        #[arg(long)]
        after: Option<String>,
    },
}

/// What an executor is.
#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum ExecutorKindArg {
    /// The address of one agent
    AgentApplication,
    /// A machine that runs are routed to by name
    Runner,
    /// A machine that serves a pool
    ToolProvider,
}

/// Whose work a machine does.
#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum ScopeArg {
    /// Its manager's
    UserPrivate,
    /// Everybody's of the account
    AccountWide,
}

/// Executors.
#[derive(Debug, Subcommand)]
pub enum Executors {
    /// Makes one, or pairs it again; prints its token this once
    Create {
        /// What it is
        #[arg(long)]
        kind: ExecutorKindArg,
        /// A machine's manager, a human
        #[arg(long, conflicts_with = "agent")]
        manager: Option<String>,
        /// An agent application's agent
        #[arg(long)]
        agent: Option<String>,
        /// A machine's registration key
        #[arg(long)]
        registration: Option<String>,
        /// Whose work a machine does
        #[arg(long)]
        scope: Option<ScopeArg>,
        /// What people read
        #[arg(long)]
        display_name: String,
    },
    /// Lists them
    List {
        /// Only this account's
        #[arg(long)]
        account: Option<String>,
        /// Where the page begins
        #[arg(long)]
        after: Option<String>,
    },
    /// Shows one
    Show {
        /// The executor
        executor: String,
    },
    /// Pairs it again: a new token, this once; earlier ones are dead
    Rotate {
        /// The executor
        executor: String,
    },
    /// Ends it for good
    Revoke {
        /// The executor
        executor: String,
    },
    /// Drains it: no new claims, claimed work may finish
    Shutdown {
        /// The executor
        executor: String,
    },
}

/// The sweeper.
#[derive(Debug, Subcommand)]
pub enum Sweeper {
    /// Shows leases and sweeps
    Show,
    /// Forces one cycle
    Run {
        /// Which: parks, awaits, …
        sweep: String,
    },
}

/// Does it.
///
/// # Errors
/// [`Failure`].
pub async fn run(context: &Context, command: Command) -> Result<(), Failure> {
    let client = context.operator()?.with_retry(RetryPolicy::default());
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
