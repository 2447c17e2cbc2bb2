//! Executors: delivery addresses (`executor.md` §2), their presence as the row has it (§18), and
//! the facts that eligibility is judged on.
//!
//! Invariants: at most one executor that is not revoked per registration key; every write that
//! moves the epoch or revokes also clears the presence mark.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::page::{Page, keyset};
use super::tx::Tx;
use super::{Error, Sql, Store};
use crate::domain::words::{AssignmentScope, ExecutorKind, ExecutorStatus, Presence, Standing};
use crate::domain::{AccountId, Canonical, ExecutorId, MemberId, PublicId, Timestamp};

/// An executor.
#[derive(Debug, Clone)]
pub struct Executor {
    /// Its account.
    pub account: AccountId,
    /// Its account's public id.
    pub account_public_id: PublicId,
    /// Inner id.
    pub id: ExecutorId,
    /// Public id: survives re-pairing, not revocation.
    pub public_id: PublicId,
    /// What it is.
    pub kind: ExecutorKind,
    /// Whether it still exists.
    pub status: ExecutorStatus,
    /// What people read.
    pub display_name: String,
    /// The epoch that a valid token carries.
    pub credential_epoch: i32,
    /// Machines: the human who manages it. Applications: their agent.
    pub owner: (MemberId, PublicId),
    /// Whether that member may act.
    pub owner_status: Standing,
    /// Machines: what the installer says. Applications: empty, their key is the agent.
    pub registration_identifier: String,
    /// Machines: whose work it may do.
    pub assignment_scope: Option<AssignmentScope>,
    /// Whether a valid token of its current epoch exists.
    pub has_usable_token: bool,
    /// When a shutdown was asked for.
    pub shutdown_at: Option<Timestamp>,
    /// The epoch that a finished shutdown stored.
    pub shutdown_generation: Option<i32>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// When it last announced.
    pub announced_at: Option<Timestamp>,
    /// Whether somebody is there.
    pub presence: Presence,
    /// When somebody last was, sampled.
    pub last_seen_at: Option<Timestamp>,
    /// Since when somebody is; none unless online.
    pub connected_at: Option<Timestamp>,
    /// When it was registered.
    pub created_at: Timestamp,
    /// When all this was read.
    pub measured_at: Timestamp,
}

impl TryFrom<&Row> for Executor {
    type Error = Error;

    fn try_from(row: &Row) -> Result<Self, Error> {
        let scope: Option<&str> = row.get("assignment_scope");
        let assignment_scope = scope
            .map(str::parse)
            .transpose()
            .map_err(|_| Error::inconsistent("executors", "assignment_scope", "a row"))?;
        let presence: Presence = super::rows::word(row, "executors", "presence")?;
        let connected_at: Option<Timestamp> = row.get("connected_at");
        Ok(Self {
            account: AccountId(row.get("account_id")),
            account_public_id: PublicId(row.get("account_public_id")),
            id: ExecutorId(row.get("executor_id")),
            public_id: PublicId(row.get("public_id")),
            kind: super::rows::word(row, "executors", "kind")?,
            status: super::rows::word(row, "executors", "status")?,
            display_name: row.get("display_name"),
            credential_epoch: row.get("credential_epoch"),
            owner: (
                MemberId(row.get("owner_id")),
                PublicId(row.get("owner_public_id")),
            ),
            owner_status: super::rows::word(row, "members", "owner_status")?,
            registration_identifier: row.get("registration_identifier"),
            assignment_scope,
            has_usable_token: row.get("has_usable_token"),
            shutdown_at: row.get("shutdown_at"),
            shutdown_generation: row.get("shutdown_generation"),
            revoked_at: row.get("revoked_at"),
            announced_at: row.get("announced_at"),
            presence,
            last_seen_at: row.get("last_seen_at"),
            connected_at: connected_at.filter(|_| presence == Presence::Online),
            created_at: row.get("created_at"),
            measured_at: row.get("measured_at"),
        })
    }
}

/// What an executor announced beside its tools.
#[derive(Debug, Clone)]
pub struct Announced {
    /// The executor.
    pub executor: Executor,
    /// Opaque environment.
    pub environment: Canonical,
    /// Served documents: an array of `{name, description}`.
    pub documents: Canonical,
}

impl TryFrom<&Row> for Announced {
    type Error = Error;

    fn try_from(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            executor: Executor::try_from(row)?,
            environment: Canonical::trusted(row.get("environment")),
            documents: Canonical::trusted(row.get("documents")),
        })
    }
}

/// What at most one live executor is registered under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// Machines: manager and identifier, blind to kind.
    Machine(MemberId, String),
    /// Applications: the agent.
    Agent(MemberId),
}

/// What a new executor is made of.
#[derive(Debug, Clone)]
pub struct New {
    /// Its account.
    pub account: AccountId,
    /// Public id.
    pub public_id: PublicId,
    /// What it is.
    pub kind: ExecutorKind,
    /// Its registration key.
    pub key: Key,
    /// Machines: whose work it may do.
    pub assignment_scope: Option<AssignmentScope>,
    /// What people read.
    pub display_name: String,
}

// A mark is live while the replica that holds the socket heartbeats (every 10 s, valid 30 s).
macro_rules! columns {
    () => {
        "e.account_id, a.public_id AS account_public_id, e.executor_id, e.public_id, e.kind, e.status,
         e.display_name, e.credential_epoch, o.member_id AS owner_id, o.public_id AS owner_public_id,
         o.status AS owner_status, e.registration_identifier, e.assignment_scope, e.shutdown_at,
         e.shutdown_generation, e.revoked_at, e.announced_at, e.last_seen_at, e.connected_at,
         e.created_at, nexus_now() AS measured_at,
         e.status = 'active' AND EXISTS (
            SELECT FROM tokens k
             WHERE k.account_id = e.account_id AND k.executor_id = e.executor_id
               AND k.credential_epoch = e.credential_epoch AND k.revoked_at IS NULL
               AND (k.expires_at IS NULL OR k.expires_at > nexus_now())) AS has_usable_token,
         CASE WHEN e.online_connection IS NOT NULL AND EXISTS (
                   SELECT FROM replicas r
                    WHERE r.replica_id = e.online_replica AND r.heartbeat_at > nexus_now() - interval '30 seconds')
                   THEN 'online'
              WHEN e.last_seen_at IS NULL THEN 'not_yet_seen'
              ELSE 'offline' END AS presence"
    };
}

macro_rules! from {
    () => {
        " FROM executors e
          JOIN accounts a ON a.account_id = e.account_id
          JOIN members o ON o.account_id = e.account_id AND o.member_id = coalesce(e.manager_id, e.agent_id)"
    };
}

static BY_PUBLIC_ID: Sql = Sql::new(
    "executors.by_public_id",
    concat!("SELECT ", columns!(), from!(), " WHERE e.public_id = $1"),
    &[Type::UUID],
);

static BY_ID: Sql = Sql::new(
    "executors.by_id",
    concat!(
        "SELECT ",
        columns!(),
        from!(),
        " WHERE e.account_id = $1 AND e.executor_id = $2"
    ),
    &[Type::INT8, Type::INT8],
);

static LIST: [Sql; 2] = keyset!(
    "executors.list",
    concat!("SELECT ", columns!(), from!()),
    "e.account_id",
    "e.executor_id"
);

static ANNOUNCED: Sql = Sql::new(
    "executors.announced",
    concat!(
        "SELECT ",
        columns!(),
        ", e.environment, e.documents",
        from!(),
        " WHERE e.account_id = $1 AND e.public_id = $2"
    ),
    &[Type::INT8, Type::UUID],
);

static ANNOUNCED_OF: Sql = Sql::new(
    "executors.announced_of",
    concat!(
        "SELECT ",
        columns!(),
        ", e.environment, e.documents",
        from!(),
        " WHERE e.account_id = $1 AND e.public_id = ANY ($2) ORDER BY e.executor_id"
    ),
    &[Type::INT8, Type::UUID_ARRAY],
);

// Narrowed to rows that could be eligible; which of them are is the engine's to say.
macro_rules! announced_of_kind {
    () => {
        concat!(
            "SELECT ",
            columns!(),
            ", e.environment, e.documents",
            from!(),
            " WHERE e.account_id = $1 AND e.kind = $2 AND e.status = 'active' AND e.shutdown_at IS NULL"
        )
    };
}

static LIST_ANNOUNCED: [Sql; 2] = [
    Sql::new(
        "executors.list_announced_asc",
        concat!(
            announced_of_kind!(),
            " AND e.executor_id > coalesce($3, 0) ORDER BY e.executor_id LIMIT $4"
        ),
        &[Type::INT8, Type::TEXT, Type::INT8, Type::INT8],
    ),
    Sql::new(
        "executors.list_announced_desc",
        concat!(
            announced_of_kind!(),
            " AND e.executor_id < coalesce($3, 9223372036854775807) ORDER BY e.executor_id DESC LIMIT $4"
        ),
        &[Type::INT8, Type::TEXT, Type::INT8, Type::INT8],
    ),
];

// `OF e`: the executor's row is the one that is decided on.
static LIVE_MACHINE: Sql = Sql::new(
    "executors.live_machine",
    concat!(
        "SELECT ",
        columns!(),
        from!(),
        " WHERE e.account_id = $1 AND e.manager_id = $2 AND e.registration_identifier = $3
            AND e.status = 'active' FOR UPDATE OF e"
    ),
    &[Type::INT8, Type::INT8, Type::TEXT],
);

static LIVE_AGENT: Sql = Sql::new(
    "executors.live_agent",
    concat!(
        "SELECT ",
        columns!(),
        from!(),
        " WHERE e.account_id = $1 AND e.agent_id = $2 AND e.status = 'active' FOR UPDATE OF e"
    ),
    &[Type::INT8, Type::INT8],
);

// Whoever registers a key at the same time waits on the unique index, then finds nothing to do.
static INSERT: Sql = Sql::new(
    "executors.insert",
    "INSERT INTO executors (account_id, public_id, kind, manager_id, agent_id, registration_identifier,
                            assignment_scope, display_name)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
     ON CONFLICT DO NOTHING
     RETURNING executor_id, credential_epoch",
    &[
        Type::INT8,
        Type::UUID,
        Type::TEXT,
        Type::INT8,
        Type::INT8,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
    ],
);

// A new credential begins a new life after a shutdown that finished; one that is still draining
// goes on (executor.md §19: a manager restored meanwhile does not cancel it).
static ROTATE: Sql = Sql::new(
    "executors.rotate",
    "UPDATE executors
        SET credential_epoch = credential_epoch + 1,
            display_name = coalesce($3, display_name),
            shutdown_at = CASE WHEN shutdown_generation IS NULL THEN shutdown_at END,
            shutdown_generation = NULL,
            online_connection = NULL, online_replica = NULL, connected_at = NULL
      WHERE account_id = $1 AND executor_id = $2 AND status = 'active'
     RETURNING credential_epoch",
    &[Type::INT8, Type::INT8, Type::TEXT],
);

static REVOKE: Sql = Sql::new(
    "executors.revoke",
    "UPDATE executors
        SET status = 'revoked', revoked_at = nexus_now(),
            online_connection = NULL, online_replica = NULL, connected_at = NULL
      WHERE account_id = $1 AND executor_id = $2 AND status = 'active'
     RETURNING executor_id",
    &[Type::INT8, Type::INT8],
);

static SHUTDOWN: Sql = Sql::new(
    "executors.shutdown",
    "UPDATE executors SET shutdown_at = coalesce(shutdown_at, nexus_now())
      WHERE account_id = $1 AND executor_id = $2 AND status = 'active'",
    &[Type::INT8, Type::INT8],
);

static ADDRESS_OF_AGENT: Sql = Sql::new(
    "executors.address_of_agent",
    "SELECT public_id FROM executors WHERE account_id = $1 AND agent_id = $2 AND status = 'active'",
    &[Type::INT8, Type::INT8],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[
    &BY_PUBLIC_ID,
    &BY_ID,
    &LIST[0],
    &LIST[1],
    &ANNOUNCED,
    &ANNOUNCED_OF,
    &LIST_ANNOUNCED[0],
    &LIST_ANNOUNCED[1],
    &LIVE_MACHINE,
    &LIVE_AGENT,
    &INSERT,
    &ROTATE,
    &REVOKE,
    &SHUTDOWN,
    &ADDRESS_OF_AGENT,
];

/// The executor of that public id, of whatever account: for operators.
///
/// # Errors
/// A fault of the database.
pub async fn by_public_id(store: &Store, id: PublicId) -> Result<Option<Executor>, Error> {
    let row = store
        .conn()
        .await?
        .query_opt(&BY_PUBLIC_ID, &[&id.0])
        .await?;
    row.as_ref().map(Executor::try_from).transpose()
}

/// The executor of that inner id: what bootstrap shows.
///
/// # Errors
/// A fault of the database; the row of a proven caller that is missing.
pub async fn by_id(store: &Store, account: AccountId, id: ExecutorId) -> Result<Executor, Error> {
    let row = store
        .conn()
        .await?
        .query_opt(&BY_ID, &[&account.0, &id.0])
        .await?;
    found(row.as_ref(), id)
}

/// The same, inside a transaction: it sees what the transaction wrote.
pub(crate) async fn read(
    tx: &mut Tx,
    account: AccountId,
    id: ExecutorId,
) -> Result<Executor, Error> {
    let rows = tx.query(&BY_ID, &[&account.0, &id.0]).await?;
    found(rows.first(), id)
}

fn found(row: Option<&Row>, id: ExecutorId) -> Result<Executor, Error> {
    row.ok_or_else(|| Error::inconsistent("executors", "executor_id", id.0))
        .and_then(Executor::try_from)
}

/// One page, for operators.
///
/// # Errors
/// A fault of the database.
pub async fn list(store: &Store, page: &Page) -> Result<Vec<Executor>, Error> {
    let [low, high, account, id, limit] = page.bounds();
    let rows = store
        .conn()
        .await?
        .query(page.order.of(&LIST), &[&low, &high, &account, &id, &limit])
        .await?;
    rows.iter().map(Executor::try_from).collect()
}

/// Executors by public id with what they announced, as far as they exist.
///
/// # Errors
/// A fault of the database.
pub async fn announced_of(
    store: &Store,
    account: AccountId,
    ids: &[PublicId],
) -> Result<Vec<Announced>, Error> {
    let ids: Vec<uuid::Uuid> = ids.iter().map(|id| id.0).collect();
    let conn = store.conn().await?;
    let rows = conn.query(&ANNOUNCED_OF, &[&account.0, &ids]).await?;
    rows.iter().map(Announced::try_from).collect()
}

/// An executor of that account with what it announced.
///
/// # Errors
/// A fault of the database.
pub async fn announced(
    store: &Store,
    account: AccountId,
    id: PublicId,
) -> Result<Option<Announced>, Error> {
    let row = store
        .conn()
        .await?
        .query_opt(&ANNOUNCED, &[&account.0, &id.0])
        .await?;
    row.as_ref().map(Announced::try_from).transpose()
}

/// One page of an account's active executors of that kind that are not shutting down, with what
/// they announced. Eligibility is for the caller to judge.
///
/// # Errors
/// A fault of the database.
pub async fn list_announced(
    store: &Store,
    account: AccountId,
    kind: ExecutorKind,
    page: &Page,
) -> Result<Vec<Announced>, Error> {
    let after = page.after.map(|(_, id)| id);
    let rows = store
        .conn()
        .await?
        .query(
            page.order.of(&LIST_ANNOUNCED),
            &[&account.0, &kind.as_str(), &after, &page.limit],
        )
        .await?;
    rows.iter().map(Announced::try_from).collect()
}

/// The live executor under a registration key, its row locked.
pub(crate) async fn lock_live(
    tx: &mut Tx,
    account: AccountId,
    key: &Key,
) -> Result<Option<Executor>, Error> {
    let rows = match key {
        Key::Machine(manager, identifier) => {
            tx.query(&LIVE_MACHINE, &[&account.0, &manager.0, identifier])
                .await?
        }
        Key::Agent(agent) => tx.query(&LIVE_AGENT, &[&account.0, &agent.0]).await?,
    };
    rows.first().map(Executor::try_from).transpose()
}

/// Registers one; gives its id and epoch, or none when a live executor has its key.
pub(crate) async fn insert(tx: &mut Tx, new: &New) -> Result<Option<(ExecutorId, i32)>, Error> {
    let (manager, agent, identifier) = match &new.key {
        Key::Machine(manager, identifier) => (Some(manager.0), None, identifier.clone()),
        Key::Agent(agent) => (None, Some(agent.0), String::new()),
    };
    let scope = new.assignment_scope.map(AssignmentScope::as_str);
    let rows = tx
        .query(
            &INSERT,
            &[
                &new.account.0,
                &new.public_id.0,
                &new.kind.as_str(),
                &manager,
                &agent,
                &identifier,
                &scope,
                &new.display_name,
            ],
        )
        .await?;
    Ok(rows.first().map(|row| (ExecutorId(row.get(0)), row.get(1))))
}

/// Raises the epoch of one that is active, and renames it if a name is given; gives the new
/// epoch. The row stays locked.
pub(crate) async fn rotate(
    tx: &mut Tx,
    account: AccountId,
    id: ExecutorId,
    display_name: Option<&str>,
) -> Result<Option<i32>, Error> {
    let rows = tx
        .query(&ROTATE, &[&account.0, &id.0, &display_name])
        .await?;
    Ok(rows.first().map(|row| row.get(0)))
}

/// Revokes one for good; false when it was already.
pub(crate) async fn revoke(tx: &mut Tx, account: AccountId, id: ExecutorId) -> Result<bool, Error> {
    let rows = tx.query(&REVOKE, &[&account.0, &id.0]).await?;
    Ok(!rows.is_empty())
}

/// Asks an active one to drain; false when it is revoked. A repeat keeps the first time.
///
/// # Errors
/// A fault of the database.
pub async fn shutdown(store: &Store, account: AccountId, id: ExecutorId) -> Result<bool, Error> {
    let n = store
        .conn()
        .await?
        .execute(&SHUTDOWN, &[&account.0, &id.0])
        .await?;
    Ok(n > 0)
}

/// The live address of an agent.
///
/// # Errors
/// A fault of the database.
pub async fn address_of_agent(
    store: &Store,
    account: AccountId,
    agent: MemberId,
) -> Result<Option<PublicId>, Error> {
    let row = store
        .conn()
        .await?
        .query_opt(&ADDRESS_OF_AGENT, &[&account.0, &agent.0])
        .await?;
    Ok(row.map(|row| PublicId(row.get(0))))
}
