//! Pages of what is addressed to an executor or to its pools (`executor.md` §6).

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::{
    Caller, Error, ExecutorId, InboxRow, ParkKind, ParkNo, Sql, Store, caller_of, claim, facts,
    inbox_row, rows,
};
use crate::domain::AccountId;
use crate::domain::words::ExecutorKind;
use crate::engine::eligibility::{Standing, is_listed};
use crate::store::rows::executor_columns;

/// A row of the inbox with what its listing is judged on.
#[derive(Debug)]
pub struct Listed {
    /// Cursor.
    pub park_no: ParkNo,
    /// Whether it can be listed now, whoever is eligible.
    pub listable: bool,
    /// What a claim of it would be judged on.
    pub facts: claim::Facts,
    /// The row.
    pub row: InboxRow,
}

/// The caller alone, as it stands now.
static CALLER: Sql = Sql::new(
    "inbox.caller",
    concat!(
        "SELECT ",
        executor_columns!(),
        " FROM executors e
           LEFT JOIN members ea ON ea.account_id = e.account_id AND ea.member_id = e.agent_id
          WHERE e.account_id = $1 AND e.executor_id = $2"
    ),
    &[Type::INT8, Type::INT8],
);

/// A page of the parks addressed to an executor or to its pools, oldest first.
static PAGE: Sql = Sql::new(
    "inbox.page",
    concat!(
        "WITH page AS MATERIALIZED (
            (SELECT p.* FROM parks p WHERE p.account_id = $1 AND p.executor_id = $2 AND p.park_no > $3
              ORDER BY p.park_no LIMIT $4)
            UNION ALL
            (SELECT p.* FROM served_tools s
              CROSS JOIN LATERAL (SELECT * FROM parks p WHERE p.account_id = $1 AND p.executor_id IS NULL
                                     AND p.pool_name = s.name AND p.park_no > $3
                                   ORDER BY p.park_no LIMIT $4 OFFSET 0) p
              WHERE s.account_id = $1 AND s.executor_id = $2 AND $5)
            ORDER BY park_no LIMIT $4)
         SELECT ", row_columns!(), ", ", judged_columns!(), ", p.clock_frozen
           FROM page p ", row_joins!(), "
          CROSS JOIN LATERAL (SELECT * FROM members pm WHERE pm.account_id = r.account_id
                                 AND pm.member_id = r.principal_id OFFSET 0) pm
          ORDER BY p.park_no"
    ),
    &[Type::INT8, Type::INT8, Type::INT8, Type::INT8, Type::BOOL],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[&CALLER, &PAGE];

/// What a row's listing is judged on, from [`judged_columns`] and its park.
pub(super) fn standing(row: &Row, facts: &claim::Facts) -> Result<Standing, Error> {
    Ok(Standing {
        run_status: facts.run_status,
        force_stopped: facts.force_stopped,
        tombstoned: row.get("tombstoned"),
        kind: rows::word(row, "parks", "park_kind")?,
        pooled: row.get::<_, Option<i64>>("park_executor_id").is_none(),
        claimed_by: facts.claim.as_ref().map(|c| c.by),
        frozen: row.get("clock_frozen"),
    })
}

fn listed(row: &Row, caller: Caller) -> Result<Listed, Error> {
    let park: ParkKind = rows::word(row, "parks", "park_kind")?;
    let facts = facts(row, caller, Some(park))?;
    Ok(Listed {
        park_no: ParkNo(row.get("park_no")),
        listable: is_listed(&standing(row, &facts)?, caller.id),
        row: inbox_row(row)?,
        facts,
    })
}

impl Store {
    /// An executor as it stands now.
    ///
    /// # Errors
    /// A fault.
    pub async fn inbox_caller(
        &self,
        account: AccountId,
        executor: ExecutorId,
    ) -> Result<Option<Caller>, Error> {
        let conn = self.conn().await?;
        let row = conn.query_opt(&CALLER, &[&account.0, &executor.0]).await?;
        row.map(|row| caller_of(&row, true)).transpose()
    }

    /// A page of what is addressed to the caller or its pools, oldest first; the rows as fetched,
    /// to be judged one by one.
    ///
    /// # Errors
    /// A fault.
    pub async fn inbox_page(
        &self,
        account: AccountId,
        caller: &Caller,
        after: i64,
        limit: i64,
    ) -> Result<Vec<Listed>, Error> {
        let pools = caller.executor.kind == ExecutorKind::ToolProvider;
        let conn = self.conn().await?;
        let rows = conn
            .query(&PAGE, &[&account.0, &caller.id.0, &after, &limit, &pools])
            .await?;
        rows.iter().map(|row| listed(row, *caller)).collect()
    }
}
