//! The arguments of `nexus admin`.

use clap::{Subcommand, ValueEnum};

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
