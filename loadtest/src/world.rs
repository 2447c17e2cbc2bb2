//! What a scenario works in: an account of its own, provisioned through the operator plane, with a
//! workspace, a human, and as many executors as asked for; and runs in it.
//!
//! Each scenario has a fresh account, so that no scenario's leftovers weigh on the next and every
//! check may speak of the whole account.

use std::fmt::Write as _;
use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use nexus::client::words::{Access, AssignmentScope, ExecutorKind, MemberKind};
use nexus::client::{Announcement, Client, NewExecutor, NewMember, ServedTool};
use nexus::domain::effect_profile::{
    EffectKind, EffectProfile, EffectScope, Idempotency, Reconciliation,
};
use serde::Deserialize;
use uuid::Uuid;

use crate::error::Error;
use crate::http::Conn;
use crate::seed::Database;

/// The tool that every executor of a scenario serves.
pub const TOOL: &str = "work";

/// Where to load.
#[derive(Debug, Clone)]
pub struct Target {
    /// Base URLs of replicas; work is dealt out over them.
    pub urls: Vec<String>,
    /// An operator bearer.
    pub operator: String,
    /// The server's database, for seeding and for checks of whole tables.
    pub database: Option<String>,
}

impl Target {
    /// The base URL for connection number `i`.
    pub fn url(&self, i: usize) -> &str {
        &self.urls[i % self.urls.len()]
    }

    /// The database.
    ///
    /// # Errors
    /// [`Error::Setup`] when none was given.
    pub async fn database(&self, why: &str) -> Result<Database, Error> {
        match &self.database {
            Some(url) => Database::connect(url).await,
            None => Err(Error::Setup(format!("{why} needs --database-url"))),
        }
    }
}

/// Somebody with a bearer.
#[derive(Debug, Clone)]
pub struct Party {
    /// Public id.
    pub id: String,
    /// Bearer.
    pub token: String,
}

/// An account of a scenario's own.
#[derive(Debug, Clone)]
pub struct World {
    /// Where.
    pub target: Target,
    /// The account.
    pub account: String,
    /// Its workspace.
    pub workspace: String,
    /// A human who may write.
    pub human: Party,
    /// Machines of the kind asked for, all serving [`TOOL`].
    pub executors: Vec<Party>,
}

/// One row to claim and commit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Row {
    /// Its run.
    pub run: Arc<str>,
    /// Its key.
    pub key: Arc<str>,
}

#[derive(Deserialize)]
struct Created {
    run: CreatedRun,
}

#[derive(Deserialize)]
struct CreatedRun {
    public_id: String,
}

fn profile() -> EffectProfile {
    EffectProfile {
        kind: EffectKind::ReadOnly,
        destructive: false,
        effect_scope: EffectScope::Closed,
        idempotency: Idempotency::Intrinsic,
        reconciliation: Reconciliation::None,
    }
}

impl World {
    /// Provisions one with that many executors of a kind.
    ///
    /// # Errors
    /// [`Error::Client`].
    pub async fn provision(
        target: &Target,
        kind: ExecutorKind,
        executors: usize,
    ) -> Result<Self, Error> {
        let client = Client::new(target.url(0), &target.operator)?;
        let account = client.create_account("loadtest").await?.value.public_id;
        let workspace = client.create_workspace(&account, "loadtest").await?;
        let workspace = workspace.value.public_id;
        let human = client
            .create_member(&NewMember {
                account_public_id: account.clone(),
                kind: MemberKind::Human,
                handle: "load".to_owned(),
                display_name: None,
                controlling_human_public_id: None,
            })
            .await?
            .value;
        let human = Party {
            id: human.member.public_id,
            token: human.token,
        };
        client.grant(&workspace, &human.id, Access::Write).await?;
        let executors: Vec<Party> = stream::iter(0..executors)
            .map(|i| machine(&client, kind.clone(), &human.id, i))
            .buffered(8)
            .try_collect()
            .await?;
        Ok(Self {
            target: target.clone(),
            account,
            workspace,
            human,
            executors,
        })
    }

    /// A connection with executor number `i`'s bearer (they are dealt out in turn).
    ///
    /// # Errors
    /// [`Error::Setup`].
    pub fn executor(&self, i: usize) -> Result<Conn, Error> {
        let who = &self.executors[i % self.executors.len()];
        Conn::new(self.target.url(i), &who.token)
    }

    /// A connection with the human's bearer.
    ///
    /// # Errors
    /// [`Error::Setup`].
    pub fn member(&self, i: usize) -> Result<Conn, Error> {
        Conn::new(self.target.url(i), &self.human.token)
    }

    /// The path of the workspace's runs.
    pub fn runs(&self) -> String {
        format!("/agent_api/v1/workspaces/{}/runs", self.workspace)
    }

    /// A step that calls [`TOOL`] on executor number `i`, or on whoever serves it.
    pub fn step(&self, key: &str, executor: Option<usize>) -> String {
        let mut step = format!(r#"{{"tool":{{"key":"{key}","name":"{TOOL}","input":{{"n":1}}"#);
        if let Some(i) = executor {
            let id = &self.executors[i % self.executors.len()].id;
            let _ = write!(
                step,
                r#","route":{{"kind":"runner","runner_executor_public_id":"{id}"}}"#
            );
        }
        step.push_str("}}");
        step
    }

    /// Creates a run of these steps; its id.
    ///
    /// # Errors
    /// [`Error::Answer`].
    pub async fn create(&self, conn: &mut Conn, steps: &str) -> Result<Arc<str>, Error> {
        let body = format!(r#"{{"run":{{"approval_mode":"bypass","steps":{steps}}}}}"#);
        let created: Created = conn.post(&self.runs(), body).await?.read()?;
        Ok(created.run.public_id.into())
    }

    /// Starts a run.
    ///
    /// # Errors
    /// [`Error::Answer`].
    pub async fn start(&self, conn: &mut Conn, run: &str) -> Result<(), Error> {
        let answer = conn
            .post(&format!("{}/{run}/start", self.runs()), "")
            .await?;
        if answer.status.is_success() {
            Ok(())
        } else {
            Err(answer.fault())
        }
    }

    /// `count` started runs, run number `i` of `steps(i % variants)`; their ids in that order. With a
    /// database each variant is made once through the door and multiplied in the tables, without one
    /// all are made through the door.
    ///
    /// # Errors
    /// A refused call, or a database that refuses.
    pub async fn open_runs(
        &self,
        count: usize,
        variants: usize,
        steps: impl Fn(usize) -> String,
    ) -> Result<Vec<Arc<str>>, Error> {
        let mut by_variant: Vec<Vec<Arc<str>>> = Vec::with_capacity(variants);
        let by_door = if self.target.database.is_some() {
            variants.min(count)
        } else {
            count
        };
        let made: Vec<Arc<str>> = stream::iter(0..by_door)
            .map(|i| {
                let steps = steps(i % variants);
                async move {
                    let mut conn = self.member(i)?;
                    let run = self.create(&mut conn, &steps).await?;
                    self.start(&mut conn, &run).await?;
                    Ok::<_, Error>(run)
                }
            })
            .buffered(16)
            .try_collect()
            .await?;
        if by_door == count {
            return Ok(made);
        }
        let database = self.target.database("multiplying runs").await?;
        for (i, run) in made.iter().enumerate() {
            let copies = count / variants + usize::from(i < count % variants) - 1;
            let mut all = vec![run.clone()];
            let id: Uuid = run.parse().map_err(|_| {
                Error::Setup(format!("the server named a run `{run}`, which is no UUID"))
            })?;
            all.extend(database.multiply(id, copies).await?);
            by_variant.push(all);
        }
        database.analyze().await?;
        Ok((0..count)
            .map(|i| by_variant[i % variants][i / variants].clone())
            .collect())
    }
}

async fn machine(
    client: &Client,
    kind: ExecutorKind,
    manager: &str,
    i: usize,
) -> Result<Party, Error> {
    let made = client
        .create_executor(&NewExecutor {
            kind,
            manager_public_id: Some(manager.to_owned()),
            agent_public_id: None,
            registration_identifier: Some(format!("load-{i}")),
            assignment_scope: Some(AssignmentScope::AccountWide),
            display_name: format!("load {i}"),
        })
        .await?
        .value;
    let announcement = Announcement {
        tools: vec![ServedTool {
            name: TOOL.to_owned(),
            effect_profile: profile(),
            timeout_ms: None,
            description: None,
            input_schema: None,
        }],
        environment: None,
        documents: None,
    };
    client
        .with_token(&made.credential.token)?
        .announce(&announcement)
        .await?;
    Ok(Party {
        id: made.executor.public_id,
        token: made.credential.token,
    })
}
