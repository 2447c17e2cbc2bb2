//! Bearers: look-up by their searchable part, and everything that makes one valid, in one
//! indexed read (`conventions.md` §2).
//!
//! Accepted iff: found, hash equal, right plane, not revoked, not expired, epoch equal, owner and
//! account active.

use tokio_postgres::types::Type;

use super::{Error, Sql, Store};
use crate::domain::credential::Bearer;
use crate::domain::words::{ExecutorKind, MemberKind};
use crate::domain::{AccountId, ExecutorId, MemberId, PublicId};

/// A proven executor.
#[derive(Debug, Clone)]
pub struct ExecutorCaller {
    /// Its account.
    pub account: AccountId,
    /// Its inner id.
    pub id: ExecutorId,
    /// Its public id.
    pub public_id: PublicId,
    /// What it is.
    pub kind: ExecutorKind,
    /// The epoch its token was minted under, and is current.
    pub epoch: i32,
    /// The token's inner id: what a rate limit is charged to.
    pub token_id: i64,
}

/// A proven member.
#[derive(Debug, Clone)]
pub struct MemberCaller {
    /// Its account.
    pub account: AccountId,
    /// Its inner id.
    pub id: MemberId,
    /// Its public id.
    pub public_id: PublicId,
    /// Human or agent.
    pub kind: MemberKind,
    /// Its handle.
    pub handle: String,
    /// The token's inner id: what a rate limit is charged to.
    pub token_id: i64,
}

static EXECUTOR: Sql = Sql::new(
    "credentials.executor",
    "SELECT k.account_id, k.token_id, k.salt, k.secret_hash, e.executor_id, e.public_id, e.kind,
            e.credential_epoch, (e.last_seen_at IS NULL OR e.last_seen_at < nexus_now() - interval '1 minute') AS stale,
            (k.last_used_at IS NULL OR k.last_used_at < nexus_now() - interval '1 hour') AS unsampled
       FROM tokens k
       JOIN executors e ON e.account_id = k.account_id AND e.executor_id = k.executor_id
       JOIN accounts a ON a.account_id = k.account_id
  LEFT JOIN members g ON g.account_id = e.account_id AND g.member_id = e.agent_id
      WHERE k.lookup = $1 AND k.plane = 'executor_transport' AND k.revoked_at IS NULL
        AND (k.expires_at IS NULL OR k.expires_at > nexus_now())
        AND k.credential_epoch = e.credential_epoch
        AND e.status = 'active' AND a.status = 'active' AND coalesce(g.status, 'active') = 'active'",
    &[Type::TEXT],
);

static MEMBER: Sql = Sql::new(
    "credentials.member",
    "SELECT k.account_id, k.token_id, k.salt, k.secret_hash, m.member_id, m.public_id, m.kind, m.handle,
            (k.last_used_at IS NULL OR k.last_used_at < nexus_now() - interval '1 hour') AS unsampled
       FROM tokens k
       JOIN members m ON m.account_id = k.account_id AND m.member_id = k.member_id
       JOIN accounts a ON a.account_id = k.account_id
      WHERE k.lookup = $1 AND k.plane = 'member' AND k.revoked_at IS NULL
        AND (k.expires_at IS NULL OR k.expires_at > nexus_now())
        AND k.credential_epoch = m.credential_epoch
        AND m.status = 'active' AND a.status = 'active'",
    &[Type::TEXT],
);

static OPERATOR: Sql = Sql::new(
    "credentials.operator",
    "SELECT token_id, salt, secret_hash FROM operator_tokens
      WHERE lookup = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > nexus_now())",
    &[Type::TEXT],
);

static EXECUTOR_SEEN: Sql = Sql::new(
    "credentials.executor_seen",
    "UPDATE executors SET last_seen_at = nexus_now()
      WHERE account_id = $1 AND executor_id = $2
        AND (last_seen_at IS NULL OR last_seen_at < nexus_now() - interval '1 minute')",
    &[Type::INT8, Type::INT8],
);

static TOKEN_USED: Sql = Sql::new(
    "credentials.token_used",
    "UPDATE tokens SET last_used_at = nexus_now()
      WHERE account_id = $1 AND token_id = $2
        AND (last_used_at IS NULL OR last_used_at < nexus_now() - interval '1 hour')",
    &[Type::INT8, Type::INT8],
);

static STANDING: Sql = Sql::new(
    "credentials.standing",
    "SELECT q.place
       FROM unnest($1::int8[], $2::int8[]) WITH ORDINALITY AS q(account_id, token_id, place)
       JOIN tokens k ON k.account_id = q.account_id AND k.token_id = q.token_id
       JOIN accounts a ON a.account_id = k.account_id
  LEFT JOIN executors e ON e.account_id = k.account_id AND e.executor_id = k.executor_id
  LEFT JOIN members g ON g.account_id = e.account_id AND g.member_id = e.agent_id
  LEFT JOIN members m ON m.account_id = k.account_id AND m.member_id = k.member_id
      WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > nexus_now())
        AND a.status = 'active'
        AND CASE k.plane
            WHEN 'executor_transport' THEN k.credential_epoch = e.credential_epoch
                 AND e.status = 'active' AND coalesce(g.status, 'active') = 'active'
            WHEN 'member' THEN k.credential_epoch = m.credential_epoch AND m.status = 'active'
            ELSE false END",
    &[Type::INT8_ARRAY, Type::INT8_ARRAY],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[
    &EXECUTOR,
    &MEMBER,
    &OPERATOR,
    &EXECUTOR_SEEN,
    &TOKEN_USED,
    &STANDING,
];

/// Which of these tokens, once proven, would be accepted again now: one answer each, in order, of
/// one statement however many they are (`cable.md` §5). By inner id, so no secret is needed.
///
/// # Errors
/// A fault of the database.
pub async fn standing(store: &Store, tokens: &[(AccountId, i64)]) -> Result<Vec<bool>, Error> {
    let mut standing = vec![false; tokens.len()];
    if tokens.is_empty() {
        return Ok(standing);
    }
    let accounts: Vec<i64> = tokens.iter().map(|(account, _)| account.0).collect();
    let ids: Vec<i64> = tokens.iter().map(|(_, token)| *token).collect();
    let conn = store.conn().await?;
    for row in conn.query(&STANDING, &[&accounts, &ids]).await? {
        let place: i64 = row.get("place");
        if let Some(slot) = usize::try_from(place - 1)
            .ok()
            .and_then(|at| standing.get_mut(at))
        {
            *slot = true;
        }
    }
    Ok(standing)
}

/// The executor that this bearer proves, or none.
///
/// # Errors
/// A fault of the database.
pub async fn executor(store: &Store, bearer: &Bearer) -> Result<Option<ExecutorCaller>, Error> {
    let rows = store
        .conn()
        .await?
        .query(&EXECUTOR, &[&bearer.lookup])
        .await?;
    let Some(row) = rows
        .iter()
        .find(|r| bearer.matches(r.get("salt"), r.get("secret_hash")))
    else {
        return Ok(None);
    };
    let kind: &str = row.get("kind");
    let caller = ExecutorCaller {
        account: AccountId(row.get("account_id")),
        id: ExecutorId(row.get("executor_id")),
        public_id: PublicId(row.get("public_id")),
        kind: kind
            .parse()
            .map_err(|_| Error::inconsistent("executors", "kind", kind))?,
        epoch: row.get("credential_epoch"),
        token_id: row.get("token_id"),
    };
    if row.get("stale") {
        sample(store, &EXECUTOR_SEEN, caller.account, caller.id.0);
    }
    if row.get("unsampled") {
        sample(store, &TOKEN_USED, caller.account, caller.token_id);
    }
    Ok(Some(caller))
}

/// Samples when an executor was seen (at most once a minute) or a token used (hourly), behind the
/// request: neither gates anything.
fn sample(store: &Store, sql: &'static Sql, account: AccountId, id: i64) {
    let store = store.clone();
    tokio::spawn(async move {
        if let Ok(conn) = store.conn().await {
            let _ = conn.execute(sql, &[&account.0, &id]).await;
        }
    });
}

/// The member that this bearer proves, or none.
///
/// # Errors
/// A fault of the database.
pub async fn member(store: &Store, bearer: &Bearer) -> Result<Option<MemberCaller>, Error> {
    let rows = store
        .conn()
        .await?
        .query(&MEMBER, &[&bearer.lookup])
        .await?;
    let Some(row) = rows
        .iter()
        .find(|r| bearer.matches(r.get("salt"), r.get("secret_hash")))
    else {
        return Ok(None);
    };
    let kind: &str = row.get("kind");
    let caller = MemberCaller {
        account: AccountId(row.get("account_id")),
        id: MemberId(row.get("member_id")),
        public_id: PublicId(row.get("public_id")),
        kind: kind
            .parse()
            .map_err(|_| Error::inconsistent("members", "kind", kind))?,
        token_id: row.get("token_id"),
        handle: row.get("handle"),
    };
    if row.get("unsampled") {
        sample(store, &TOKEN_USED, caller.account, caller.token_id);
    }
    Ok(Some(caller))
}

/// The inner id of the operator token that this bearer is, or none.
///
/// # Errors
/// A fault of the database.
pub async fn operator(store: &Store, bearer: &Bearer) -> Result<Option<i64>, Error> {
    let rows = store
        .conn()
        .await?
        .query(&OPERATOR, &[&bearer.lookup])
        .await?;
    Ok(rows
        .iter()
        .find(|r| bearer.matches(r.get("salt"), r.get("secret_hash")))
        .map(|r| r.get("token_id")))
}
