//! Who and what the cable's tests are about, written straight into the database: these tests need
//! neither the provisioning doors nor the run engine.

use nexus::domain::PublicId;
use nexus::domain::credential::Minted;
use nexus::domain::feed::Item;
use nexus::domain::words::Plane;
use nexus::engine::mint::Mint;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::TestApp;

/// An account with one workspace and one human who may read it.
pub struct World {
    sql: Client,
    mint: Mint,
    account: i64,
    workspace_id: i64,
    pub workspace: PublicId,
    pub human: Person,
}

/// A member or executor, and its bearer.
pub struct Person {
    pub id: i64,
    pub public_id: PublicId,
    pub token: String,
}

/// A run without tasks.
pub struct Run {
    id: i64,
    pub public_id: PublicId,
}

impl World {
    pub async fn new(app: &TestApp) -> Self {
        let sql = app.sql().await;
        let mut mint = Mint::new();
        let mut id = || Uuid::from_bytes(mint.bytes());
        let (account, workspace) = (id(), id());
        let row = sql
            .query_one(
                "INSERT INTO accounts (public_id, name) VALUES ($1, 'a') RETURNING account_id",
                &[&account],
            )
            .await
            .unwrap();
        let account: i64 = row.get(0);
        let row = sql
            .query_one(
                "INSERT INTO workspaces (account_id, public_id, name) VALUES ($1, $2, 'w')
                 RETURNING workspace_id",
                &[&account, &workspace],
            )
            .await
            .unwrap();
        let mut world = Self {
            sql,
            mint,
            account,
            workspace_id: row.get(0),
            workspace: PublicId(workspace),
            human: Person {
                id: 0,
                public_id: PublicId(Uuid::nil()),
                token: String::new(),
            },
        };
        world.human = world.member("ada").await;
        world.grant(world.human.id).await;
        world
    }

    fn id(&mut self) -> Uuid {
        Uuid::from_bytes(self.mint.bytes())
    }

    /// A human without a grant.
    pub async fn member(&mut self, handle: &str) -> Person {
        let public_id = self.id();
        let row = self
            .sql
            .query_one(
                "INSERT INTO members (account_id, public_id, kind, handle)
                 VALUES ($1, $2, 'human', $3) RETURNING member_id",
                &[&self.account, &public_id, &handle],
            )
            .await
            .unwrap();
        let id: i64 = row.get(0);
        Person {
            id,
            public_id: PublicId(public_id),
            token: self.token(Plane::Member, id).await,
        }
    }

    pub async fn grant(&self, member: i64) {
        self.sql
            .execute(
                "INSERT INTO grants VALUES ($1, $2, $3, 'read')",
                &[&self.account, &self.workspace_id, &member],
            )
            .await
            .unwrap();
    }

    pub async fn ungrant(&self, member: i64) {
        self.sql
            .execute(
                "DELETE FROM grants WHERE account_id = $1 AND member_id = $2",
                &[&self.account, &member],
            )
            .await
            .unwrap();
    }

    /// A runner managed by the human.
    pub async fn executor(&mut self) -> Person {
        let public_id = self.id();
        let row = self
            .sql
            .query_one(
                "INSERT INTO executors (account_id, public_id, kind, manager_id,
                        registration_identifier, assignment_scope, display_name)
                 VALUES ($1, $2, 'runner', $3, $4, 'account_wide', 'r') RETURNING executor_id",
                &[
                    &self.account,
                    &public_id,
                    &self.human.id,
                    &public_id.to_string(),
                ],
            )
            .await
            .unwrap();
        let id: i64 = row.get(0);
        Person {
            id,
            public_id: PublicId(public_id),
            token: self.token(Plane::Executor, id).await,
        }
    }

    async fn token(&mut self, plane: Plane, owner: i64) -> String {
        let minted = Minted::of(
            plane,
            self.mint.base62(16),
            &self.mint.base62(43),
            self.mint.bytes(),
        );
        let (table, owned_by) = match plane {
            Plane::Executor => ("executors", "executor_id"),
            _ => ("members", "member_id"),
        };
        let sql = format!(
            "INSERT INTO tokens (account_id, lookup, salt, secret_hash, plane, {owned_by}, credential_epoch)
             SELECT $1, $2, $3, $4, $5, $6, credential_epoch FROM {table}
              WHERE account_id = $1 AND {owned_by} = $6"
        );
        self.sql
            .execute(
                &sql,
                &[
                    &self.account,
                    &minted.lookup,
                    &minted.salt.as_slice(),
                    &minted.hash.as_slice(),
                    &plane.as_str(),
                    &owner,
                ],
            )
            .await
            .unwrap();
        minted.text
    }

    /// Raises the epoch and mints a token, as a re-pair does.
    pub async fn rotate(&mut self, executor: &Person) -> String {
        self.sql
            .execute(
                "UPDATE executors SET credential_epoch = credential_epoch + 1
                  WHERE account_id = $1 AND executor_id = $2",
                &[&self.account, &executor.id],
            )
            .await
            .unwrap();
        self.token(Plane::Executor, executor.id).await
    }

    /// Revokes every token of a member.
    pub async fn revoke_tokens(&self, member: i64) {
        self.sql
            .execute(
                "UPDATE tokens SET revoked_at = nexus_now() WHERE account_id = $1 AND member_id = $2",
                &[&self.account, &member],
            )
            .await
            .unwrap();
    }

    /// Which connection and replica an executor is marked with.
    pub async fn presence(&self, executor: &Person) -> Option<(Uuid, Uuid)> {
        let row = self
            .sql
            .query_one(
                "SELECT online_connection, online_replica FROM executors
                  WHERE account_id = $1 AND executor_id = $2",
                &[&self.account, &executor.id],
            )
            .await
            .unwrap();
        let connection: Option<Uuid> = row.get(0);
        connection.map(|c| (c, row.get(1)))
    }

    pub async fn run(&mut self) -> Run {
        let public_id = self.id();
        let row = self
            .sql
            .query_one(
                "INSERT INTO runs (account_id, run_id, public_id, workspace_id, creator_id,
                        principal_id, status, approval_mode, created_at)
                 VALUES ($1, nextval('run_id_seq'), $2, $3, $4, $4, 'pending', 'bypass', nexus_now())
                 RETURNING run_id",
                &[
                    &self.account,
                    &public_id,
                    &self.workspace_id,
                    &self.human.id,
                ],
            )
            .await
            .unwrap();
        Run {
            id: row.get(0),
            public_id: PublicId(public_id),
        }
    }

    pub async fn delete_run(&self, run: &Run) {
        self.sql
            .execute(
                "UPDATE runs SET deleted_at = nexus_now() WHERE account_id = $1 AND run_id = $2",
                &[&self.account, &run.id],
            )
            .await
            .unwrap();
    }

    /// Writes the next durable item of a run's feed, as a command would; announcing it is another
    /// matter.
    pub async fn event(&self, run: &Run, r#type: &str) -> Item {
        let row = self
            .sql
            .query_one(
                "WITH bumped AS (UPDATE runs SET event_seq = event_seq + 1
                                  WHERE account_id = $1 AND run_id = $2 RETURNING event_seq)
                 INSERT INTO run_events SELECT $1, $2, event_seq, $3, '{\"n\":1}', nexus_now()
                   FROM bumped RETURNING seq, created_at",
                &[&self.account, &run.id, &r#type],
            )
            .await
            .unwrap();
        Item {
            sequence: row.get(0),
            r#type: r#type.to_owned(),
            payload: r#"{"n":1}"#.to_owned(),
            created_at: row.get(1),
        }
    }

    /// Parks one tool call on an executor; gives what undoes it, since no engine made it.
    pub async fn park(&self, run: &Run, executor: &Person, key: &str) {
        self.sql
            .execute(
                "INSERT INTO tasks (account_id, run_id, task_no, key, kind, status, authored_by,
                        lifetime, wake, on_failure, visibility, lineage_no, tip_no, remaining, tool_name)
                 VALUES ($1, $2, 1, $3, 'tool_task', 'dispatched', 'author', 'turn', 'auto',
                         'propagate', 'visible', 1, 1, 0, 'read_file')",
                &[&self.account, &run.id, &key],
            )
            .await
            .unwrap();
        self.sql
            .execute(
                "INSERT INTO parks (account_id, run_id, task_no, kind, executor_id, deadline_at,
                        due_at, timeout_ms, replayable, generation, started_at, run_shard)
                 VALUES ($1, $2, 1, 'tool_call', $3, nexus_now() + interval '1 hour',
                         nexus_now() + interval '1 hour', 3600000, true, 0, nexus_now(), 0)",
                &[&self.account, &run.id, &executor.id],
            )
            .await
            .unwrap();
    }

    /// Removes what no engine would have left so.
    pub async fn unpark(&self, run: &Run) {
        for table in ["parks", "tasks"] {
            let sql = format!("DELETE FROM {table} WHERE account_id = $1 AND run_id = $2");
            self.sql
                .execute(&sql, &[&self.account, &run.id])
                .await
                .unwrap();
        }
    }
}
