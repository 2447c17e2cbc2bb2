//! The operator plane (`operating.md` §4, `executor.md` §2, `admission.md` §6).

use serde::Serialize;

use super::answers::{
    Account, Answer, Executor, ExecutorCredential, Grant, Member, MemberCredential, Page, Replica,
    SweepRun, SweeperState, Workspace,
};
use super::error::Error;
use super::transport::{Call, Client, path};
use super::words::{Access, AssignmentScope, ExecutorKind, MemberKind};
use crate::domain::Value;

/// Body of `POST /members`.
#[derive(Debug, Clone, Serialize)]
pub struct NewMember {
    /// The account.
    pub account_public_id: String,
    /// What it is.
    pub kind: MemberKind,
    /// Its handle, unique in the account.
    pub handle: String,
    /// What people read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The human an agent answers to; required for an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controlling_human_public_id: Option<String>,
}

/// Body of `POST /executors`: a machine has a manager, an agent application its agent.
#[derive(Debug, Clone, Serialize)]
pub struct NewExecutor {
    /// What it is.
    pub kind: ExecutorKind,
    /// A machine's manager, a human.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manager_public_id: Option<String>,
    /// An agent application's agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_public_id: Option<String>,
    /// A machine's registration key: the same key pairs again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registration_identifier: Option<String>,
    /// Whose work a machine may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignment_scope: Option<AssignmentScope>,
    /// What people read.
    pub display_name: String,
}

fn at(segments: &[&str]) -> String {
    format!("/operator_api/v1{}", path(segments))
}

impl Client {
    /// `POST /accounts`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn create_account(&self, name: &str) -> Result<Answer<Account>, Error> {
        let call = Call::post(at(&["accounts"])).json(&Value::from([("name", name.into())]))?;
        self.send(call).await?.wrapped("account")
    }

    /// `GET /accounts`, one page.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list_accounts(&self, after: Option<&str>) -> Result<Answer<Page<Account>>, Error> {
        let call = Call::get(at(&["accounts"])).query("after", after);
        self.send(call).await?.page("accounts")
    }

    /// `GET /accounts/{id}`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn account(&self, account: &str) -> Result<Answer<Account>, Error> {
        let call = Call::get(at(&["accounts", account]));
        self.send(call).await?.wrapped("account")
    }

    /// `POST /accounts/{id}/suspend`: stops its live runs.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn suspend_account(&self, account: &str) -> Result<Answer<Account>, Error> {
        let call = Call::post(at(&["accounts", account, "suspend"]));
        self.send(call).await?.wrapped("account")
    }

    /// `POST /accounts/{id}/resume`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn resume_account(&self, account: &str) -> Result<Answer<Account>, Error> {
        let call = Call::post(at(&["accounts", account, "resume"]));
        self.send(call).await?.wrapped("account")
    }

    /// `POST /workspaces`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn create_workspace(
        &self,
        account: &str,
        name: &str,
    ) -> Result<Answer<Workspace>, Error> {
        let body = Value::from([("account_public_id", account.into()), ("name", name.into())]);
        let call = Call::post(at(&["workspaces"])).json(&body)?;
        self.send(call).await?.wrapped("workspace")
    }

    /// `GET /workspaces`, one page; of one account when given.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list_workspaces(
        &self,
        account: Option<&str>,
        after: Option<&str>,
    ) -> Result<Answer<Page<Workspace>>, Error> {
        let call = Call::get(at(&["workspaces"]))
            .query("account", account)
            .query("after", after);
        self.send(call).await?.page("workspaces")
    }

    /// `GET /workspaces/{id}`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn workspace(&self, workspace: &str) -> Result<Answer<Workspace>, Error> {
        let call = Call::get(at(&["workspaces", workspace]));
        self.send(call).await?.wrapped("workspace")
    }

    /// `POST /members`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn create_member(&self, new: &NewMember) -> Result<Answer<MemberCredential>, Error> {
        let call = Call::post(at(&["members"])).json(new)?;
        self.send(call).await?.whole()
    }

    /// `GET /members`, one page; of one account when given.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list_members(
        &self,
        account: Option<&str>,
        after: Option<&str>,
    ) -> Result<Answer<Page<Member>>, Error> {
        let call = Call::get(at(&["members"]))
            .query("account", account)
            .query("after", after);
        self.send(call).await?.page("members")
    }

    /// `GET /members/{id}`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn member(&self, member: &str) -> Result<Answer<Member>, Error> {
        let call = Call::get(at(&["members", member]));
        self.send(call).await?.wrapped("member")
    }

    /// `POST /members/{id}/rotate`: a new token, every older one dead.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn rotate_member(&self, member: &str) -> Result<Answer<MemberCredential>, Error> {
        let call = Call::post(at(&["members", member, "rotate"]));
        self.send(call).await?.whole()
    }

    /// `POST /members/{id}/suspend`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn suspend_member(&self, member: &str) -> Result<Answer<Member>, Error> {
        let call = Call::post(at(&["members", member, "suspend"]));
        self.send(call).await?.wrapped("member")
    }

    /// `POST /members/{id}/resume`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn resume_member(&self, member: &str) -> Result<Answer<Member>, Error> {
        let call = Call::post(at(&["members", member, "resume"]));
        self.send(call).await?.wrapped("member")
    }

    /// `PUT /workspaces/{id}/grants/{member}`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn grant(
        &self,
        workspace: &str,
        member: &str,
        access: Access,
    ) -> Result<Answer<Grant>, Error> {
        let body = Value::from([("access", access.as_str().into())]);
        let call = Call::put(at(&["workspaces", workspace, "grants", member]))
            .json(&body)?
            .repeatable();
        self.send(call).await?.wrapped("grant")
    }

    /// `DELETE /workspaces/{id}/grants/{member}`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn revoke_grant(&self, workspace: &str, member: &str) -> Result<Answer<()>, Error> {
        let call = Call::delete(at(&["workspaces", workspace, "grants", member]));
        self.send(call).await?.empty()
    }

    /// `GET /workspaces/{id}/grants`, one page.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list_grants(
        &self,
        workspace: &str,
        after: Option<&str>,
    ) -> Result<Answer<Page<Grant>>, Error> {
        let call = Call::get(at(&["workspaces", workspace, "grants"])).query("after", after);
        self.send(call).await?.page("grants")
    }

    /// `POST /executors`: 201, or 200 when a live registration key was paired again.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn create_executor(
        &self,
        new: &NewExecutor,
    ) -> Result<Answer<ExecutorCredential>, Error> {
        let call = Call::post(at(&["executors"])).json(new)?;
        self.send(call).await?.whole()
    }

    /// `GET /operator_api/v1/executors`, one page; of one account when given.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list_executors(
        &self,
        account: Option<&str>,
        after: Option<&str>,
    ) -> Result<Answer<Page<Executor>>, Error> {
        let call = Call::get(at(&["executors"]))
            .query("account", account)
            .query("after", after);
        self.send(call).await?.page("executors")
    }

    /// `GET /operator_api/v1/executors/{id}`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn executor(&self, executor: &str) -> Result<Answer<Executor>, Error> {
        let call = Call::get(at(&["executors", executor]));
        self.send(call).await?.wrapped("executor")
    }

    /// `POST /executors/{id}/rotate`: re-pair, every older token dead.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn rotate_executor(
        &self,
        executor: &str,
    ) -> Result<Answer<ExecutorCredential>, Error> {
        let call = Call::post(at(&["executors", executor, "rotate"]));
        self.send(call).await?.whole()
    }

    /// `POST /executors/{id}/revoke`: terminal, idempotent.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn revoke_executor(&self, executor: &str) -> Result<Answer<Executor>, Error> {
        let call = Call::post(at(&["executors", executor, "revoke"])).repeatable();
        self.send(call).await?.wrapped("executor")
    }

    /// `POST /executors/{id}/shutdown`: drain.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn shutdown_executor(&self, executor: &str) -> Result<Answer<Executor>, Error> {
        let call = Call::post(at(&["executors", executor, "shutdown"]));
        self.send(call).await?.wrapped("executor")
    }

    /// `GET /replicas`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn replicas(&self) -> Result<Answer<Vec<Replica>>, Error> {
        let call = Call::get(at(&["replicas"]));
        self.send(call).await?.wrapped("replicas")
    }

    /// `GET /sweeper`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn sweeper(&self) -> Result<Answer<SweeperState>, Error> {
        self.send(Call::get(at(&["sweeper"]))).await?.whole()
    }

    /// `POST /sweeper/run`: forces one cycle of the named sweep (`parks`, `awaits`, …).
    ///
    /// # Errors
    /// [`Error`].
    pub async fn run_sweep(&self, sweep: &str) -> Result<Answer<SweepRun>, Error> {
        let body = Value::from([("sweep", sweep.into())]);
        let call = Call::post(at(&["sweeper", "run"])).json(&body)?;
        self.send(call).await?.whole()
    }

    /// `POST /test_clock`: moves the database's one clock forward; 404 unless the server runs with
    /// a test clock.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn advance_test_clock(&self, advance_ms: i64) -> Result<Answer<()>, Error> {
        let body = Value::from([("advance_ms", advance_ms.into())]);
        let call = Call::post(at(&["test_clock"])).json(&body)?;
        self.send(call).await?.empty()
    }
}
