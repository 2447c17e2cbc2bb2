//! Straight into the tables: many open runs, a long history, a fan wider than one request may be.
//!
//! A real run, made through the doors, is the pattern: its rows are copied column by column, whatever
//! columns there are, inside the server (`INSERT … SELECT` over `generate_series`: no row crosses the
//! wire, so it is quicker than COPY). The tool writes here and nowhere else, and only in accounts that
//! it made.

use std::sync::Arc;

use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use crate::error::Error;

/// A plain connection to the server's database.
pub struct Database {
    /// The connection.
    pub client: Client,
}

/// Tables of a run with the column that names the run, in order of writing.
const TABLES: [(&str, &str); 8] = [
    ("runs", "run_id"),
    ("tasks", "run_id"),
    ("task_inputs", "run_id"),
    ("edges", "run_id"),
    ("parks", "run_id"),
    ("task_results", "run_id"),
    ("run_events", "host_id"),
    ("receipts", "run_id"),
];

/// Version 7, so that new rows lie where a server's would. `OFFSET 0` keeps chance a row's own.
const COPIED: &str = "INSERT INTO copied
  SELECT x.n, nextval('run_id_seq'), (substr(x.h, 1, 8) || '-' || substr(x.h, 9, 4) || '-7' || substr(x.r, 16, 3) || '-8'
         || substr(x.r, 21, 3) || '-' || right(x.r, 12))::uuid
    FROM (SELECT g.n, lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') AS h,
                 gen_random_uuid()::text AS r FROM generate_series(1, COPIES) g(n) OFFSET 0) x;";

impl Database {
    /// Connects.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        Ok(Self { client })
    }

    /// The columns of a table that a copy has to fill.
    async fn columns(&self, table: &str) -> Result<Vec<String>, Error> {
        let rows = self
            .client
            .query(
                "SELECT column_name::text FROM information_schema.columns
                  WHERE table_schema = 'public' AND table_name = $1 AND is_identity = 'NO'
                    AND is_generated = 'NEVER' AND column_name <> 'park_no' ORDER BY ordinal_position",
                &[&table],
            )
            .await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Copies a run so many times; the public ids of the copies.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn multiply(&self, run: Uuid, copies: usize) -> Result<Vec<Arc<str>>, Error> {
        let mut sql = String::from("BEGIN; SET LOCAL synchronous_commit = off;");
        sql.push_str(
            "CREATE TEMP TABLE copied (n bigint, run_id bigint, public_id uuid) ON COMMIT DROP;",
        );
        sql.push_str(&COPIED.replace("COPIES", &copies.to_string()));
        for (table, run_column) in TABLES {
            let columns = self.columns(table).await?;
            let values: Vec<String> = columns
                .iter()
                .map(|c| match c.as_str() {
                    c if c == run_column => "c.run_id".to_owned(),
                    "public_id" => "c.public_id".to_owned(),
                    "run_shard" => "(c.run_id % 64)::smallint".to_owned(),
                    "key" if table == "receipts" => "'copy-' || c.run_id".to_owned(),
                    // A result names its run: the check reads it back.
                    "content" if table == "task_results" => {
                        format!("replace(t.content, '{run}', c.public_id::text)")
                    }
                    c => format!("t.{c}"),
                })
                .collect();
            sql.push_str(&format!(
                "INSERT INTO {table} ({}) SELECT {} FROM copied c,
                   (SELECT account_id, run_id FROM runs WHERE public_id = '{run}') p
                   JOIN {table} t ON t.account_id = p.account_id AND t.{run_column} = p.run_id
                  WHERE p.run_id IS NOT NULL ORDER BY c.n;",
                columns.join(", "),
                values.join(", ")
            ));
        }
        self.client.batch_execute(&sql).await?;
        let rows = self
            .client
            .query("SELECT public_id FROM copied ORDER BY n", &[])
            .await?;
        self.client.batch_execute("COMMIT").await?;
        Ok(rows
            .iter()
            .map(|row| row.get::<_, Uuid>(0).to_string().into())
            .collect())
    }

    /// Makes a started run of one call as wide as wished: rows `r1` (which it has) to `r{width}`, all
    /// dispatched alike. A request may author 64 at most.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn widen(&self, run: &str, width: usize) -> Result<(), Error> {
        let mut sql = String::from("BEGIN;");
        for table in ["tasks", "task_inputs", "parks"] {
            let columns = self.columns(table).await?;
            let values: Vec<String> = columns
                .iter()
                .map(|c| match c.as_str() {
                    "task_no" | "lineage_no" | "tip_no" => "g.n".to_owned(),
                    "key" => "'r' || g.n".to_owned(),
                    c => format!("t.{c}"),
                })
                .collect();
            sql.push_str(&format!(
                "INSERT INTO {table} ({}) SELECT {} FROM generate_series(2, {width}) g(n),
                   runs p JOIN {table} t USING (account_id, run_id)
                  WHERE p.public_id = '{run}' AND t.task_no = 1 ORDER BY g.n;",
                columns.join(", "),
                values.join(", ")
            ));
        }
        sql.push_str(&format!(
            "UPDATE runs SET n_tasks = {width}, n_open = {width}, n_started = {width},
                    deliverable_no = {width}, mainline_tail_no = {width} WHERE public_id = '{run}';
             COMMIT"
        ));
        self.client.batch_execute(&sql).await?;
        Ok(())
    }

    /// Fresh statistics for what was just written, as autovacuum would bring them.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn analyze(&self) -> Result<(), Error> {
        for (table, _) in TABLES {
            self.client
                .batch_execute(&format!("ANALYZE {table}"))
                .await?;
        }
        Ok(())
    }

    /// The inner id of an account.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn account(&self, public_id: &str) -> Result<i64, Error> {
        let id: Uuid = public_id
            .parse()
            .map_err(|_| Error::Setup(format!("`{public_id}` is no account id")))?;
        let row = self
            .client
            .query_one(
                "SELECT account_id FROM accounts WHERE public_id = $1",
                &[&id],
            )
            .await?;
        Ok(row.get(0))
    }
}
