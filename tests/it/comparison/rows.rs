//! A whole run as the database has it, in one snapshot: what the invariants of the simulation look at.
//!
//! Read by statements and decoded by hands of its own: a column that the store writes or reads wrongly
//! does not agree with itself here.

use std::collections::BTreeMap;
use std::str::FromStr;

use nexus::domain::event::ApprovalFact;
use nexus::domain::words::{MemberKind, TaskStatus};
use nexus::domain::{
    AccountId, ExecutorId, MemberId, PublicId, RunId, TaskKey, TaskNo, Timestamp, WorkspaceId,
};
use nexus::engine::eligibility::PrincipalFacts;
use nexus::engine::facts::{
    Addressed, Attention, Claim, Counts, Edge, Join, LiveClaim, Park, Run, Task, TaskError,
};
use nexus::engine::invariants::{Item, Narrated, StoredResult, World};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

/// A moment of a run.
pub struct Look {
    /// What the invariants look at.
    pub world: World,
    /// What was stored of each result's content.
    pub contents: BTreeMap<(TaskNo, i32), String>,
    /// What is wrong beside the engine's rows: marks of the parks that only the store knows.
    pub breaches: Vec<String>,
}

impl Look {
    /// The row of that number.
    pub fn task(&self, no: TaskNo) -> &Task {
        let at = self.world.tasks.binary_search_by_key(&no, |t| t.no);
        &self.world.tasks[at.expect("a row of the run")]
    }

    /// The row of that key.
    pub fn named(&self, key: &TaskKey) -> Option<&Task> {
        self.world.tasks.iter().find(|t| t.key == *key)
    }

    /// The park of that row.
    pub fn park(&self, no: TaskNo) -> Option<&Park> {
        self.world.parks.iter().find(|p| p.task == no)
    }
}

const RUN: &str =
    "SELECT nexus_now() AS now, r.* FROM runs r WHERE account_id = $1 AND run_id = $2";
const TASKS: &str =
    "SELECT t.*, (SELECT m.public_id FROM members m WHERE m.account_id = t.account_id
                            AND m.member_id = t.approval_decided_by) AS decider
       FROM tasks t WHERE account_id = $1 AND run_id = $2 ORDER BY task_no";
const EDGES: &str =
    "SELECT * FROM edges WHERE account_id = $1 AND run_id = $2 ORDER BY from_no, to_no";
const PARKS: &str =
    "SELECT p.*, (SELECT c.public_id FROM executors c WHERE c.account_id = p.account_id
                            AND c.executor_id = p.claimant_id) AS claimant
       FROM parks p WHERE account_id = $1 AND run_id = $2 ORDER BY task_no";
const FAILURES: &str =
    "SELECT task_no FROM open_failures WHERE account_id = $1 AND run_id = $2 ORDER BY task_no";
const RESULTS: &str = "SELECT task_no, generation, digest, selection, content FROM task_results
      WHERE account_id = $1 AND run_id = $2 ORDER BY task_no, generation";
const WAITS: &str = "SELECT observes_no, task_no FROM waits WHERE account_id = $1 AND run_id = $2";
const ITEMS: &str = "SELECT seq, type, p ->> 'task_key' AS task_key, p ->> 'status' AS status,
            p ->> 'run_status' AS run_status, p ->> 'attention_reason' AS attention_reason, p ->> 'reason' AS reason, p ->> 'blocked_task_keys' AS keys,
            (p ->> 'blocked_task_overflow') IS NOT NULL AS overflows
       FROM (SELECT seq, type, payload::json AS p FROM run_events
              WHERE account_id = $1 AND host_id = $2 AND seq > $3 ORDER BY seq OFFSET 0) e";

/// The statements, prepared on one connection.
pub struct Reader {
    client: Client,
    run: Statement,
    lists: [Statement; 6],
    items: Statement,
}

impl Reader {
    /// Prepares them.
    pub async fn new(client: Client) -> Self {
        // As the sessions of a server: by indexes, whatever was known of the tables.
        let by_index = "SET jit = off; SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off";
        client.batch_execute(by_index).await.expect("a setting");
        let mut lists = Vec::new();
        for sql in [TASKS, EDGES, PARKS, FAILURES, RESULTS, WAITS] {
            lists.push(client.prepare(sql).await.expect("a statement prepares"));
        }
        Self {
            run: client.prepare(RUN).await.expect("a statement prepares"),
            items: client.prepare(ITEMS).await.expect("a statement prepares"),
            lists: lists.try_into().unwrap_or_else(|_| unreachable!()),
            client,
        }
    }

    /// The inner id of a run.
    pub async fn find(&self, account: AccountId, run: PublicId) -> RunId {
        let sql = "SELECT run_id FROM runs WHERE account_id = $1 AND public_id = $2";
        let row = self.client.query_one(sql, &[&account.0, &run.0]).await;
        RunId(row.expect("a run that was created").get(0))
    }

    /// The run in one snapshot; items behind those that `known` has are read and put behind them.
    pub async fn look(&self, account: AccountId, run: RunId, known: &[Item]) -> Look {
        let from = known.last().map_or(0, |i| i.seq);
        let (account, run) = (&account.0, &run.0);
        let of_run: [&(dyn ToSql + Sync); 2] = [account, run];
        let of_items: [&(dyn ToSql + Sync); 3] = [account, run, &from];
        let list = |n: usize| self.client.query(&self.lists[n], &of_run);
        let began = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        // Polled in this order, so they travel together.
        let read = tokio::try_join!(
            self.client.batch_execute(began),
            self.client.query_one(&self.run, &of_run),
            list(0),
            list(1),
            list(2),
            list(3),
            list(4),
            list(5),
            self.client.query(&self.items, &of_items),
            self.client.batch_execute("COMMIT"),
        );
        let (_, row, tasks, edges, parks, failures, results, waits, items, _) =
            read.unwrap_or_else(|e| panic!("a run can be read: {e:?}"));
        let run = decode_run(&row);
        let told = items.iter().map(|row| item(row, &run));
        let no = |row: &Row| TaskNo(row.get("task_no"));
        let tasks: Vec<Task> = tasks.iter().map(task).collect();
        let breaches = breaches(&run, &tasks, &parks, &waits);
        Look {
            contents: results
                .iter()
                .filter_map(|row| {
                    let content: Option<String> = row.get("content");
                    Some(((no(row), row.get("generation")), content?))
                })
                .collect(),
            breaches,
            world: World {
                now: row.get("now"),
                items: known.iter().cloned().chain(told).collect(),
                run,
                tasks,
                edges: edges.iter().map(edge).collect(),
                parks: parks.iter().map(park).collect(),
                failures: failures.iter().map(no).collect(),
                results: results
                    .iter()
                    .map(|row| StoredResult {
                        task: no(row),
                        generation: row.get("generation"),
                        digest: row
                            .get::<_, Option<Vec<u8>>>("digest")
                            .map(|d| d.try_into().expect("a digest has 32 bytes")),
                        selection: row.get("selection"),
                    })
                    .collect(),
            },
        }
    }
}

/// What holds of the columns and rows that the engine does not see.
fn breaches(run: &Run, tasks: &[Task], parks: &[Row], waits: &[Row]) -> Vec<String> {
    use nexus::domain::words::{Holder, RunStatus};
    let mut breaches = Vec::new();
    let paused = run.status == RunStatus::Paused;
    for row in parks {
        let no: i32 = row.get("task_no");
        if row.get::<_, bool>("clock_frozen") != paused {
            breaches.push(format!("§10 the clock of row {no} stands: {}", !paused));
        }
        let moment = |column: &str| -> Timestamp { row.get(column) };
        if moment("due_at") > moment("deadline_at") {
            breaches.push(format!("§10 the sweeper would look at row {no} too late"));
        }
    }
    let mut listed: Vec<(i32, i32)> = waits
        .iter()
        .map(|row| (row.get("task_no"), row.get("observes_no")))
        .collect();
    listed.sort_unstable();
    let parked = tasks
        .iter()
        .filter(|t| t.holder == Some(Holder::Kernel) && t.status == TaskStatus::Dispatched);
    let wanted: Vec<(i32, i32)> = parked
        .filter_map(|t| Some((t.no.0, t.observes?.0)))
        .collect();
    if listed != wanted {
        breaches.push(format!("§9 waits are {listed:?}, not {wanted:?}"));
    }
    breaches
}

fn word<T: FromStr>(row: &Row, column: &str) -> T {
    word_opt(row, column).unwrap_or_else(|| panic!("{column} is null"))
}

fn word_opt<T: FromStr>(row: &Row, column: &str) -> Option<T> {
    let text: Option<&str> = row.get(column);
    text.map(|t| {
        t.parse()
            .unwrap_or_else(|_| panic!("{column} is no word: {t}"))
    })
}

fn number(row: &Row, column: &str) -> Option<TaskNo> {
    row.get::<_, Option<i32>>(column).map(TaskNo)
}

fn executor(row: &Row, column: &str) -> Option<ExecutorId> {
    row.get::<_, Option<i64>>(column).map(ExecutorId)
}

fn keys(text: Option<&str>) -> Vec<TaskKey> {
    let keys: Vec<String> = text.map_or_else(Vec::new, |t| {
        serde_json::from_str(t).expect("keys are an array of texts")
    });
    keys.into_iter().map(TaskKey::trusted).collect()
}

fn decode_run(row: &Row) -> Run {
    let reason = word_opt(row, "attention_reason");
    Run {
        account: AccountId(row.get("account_id")),
        id: RunId(row.get("run_id")),
        public_id: PublicId(row.get("public_id")),
        workspace: WorkspaceId(row.get("workspace_id")),
        // No invariant looks at standing.
        principal: PrincipalFacts {
            member: MemberId(row.get("principal_id")),
            kind: MemberKind::Agent,
            controlling_human: None,
            declaring_agent: None,
        },
        creator_may_write: true,
        status: word(row, "status"),
        revision: row.get("revision"),
        deliverable: number(row, "deliverable_no"),
        mainline_tail: number(row, "mainline_tail_no"),
        approval_mode: word(row, "approval_mode"),
        has_rules: row.get::<_, Option<&str>>("approval_rules").is_some(),
        counts: Counts {
            tasks: row.get("n_tasks"),
            open: row.get("n_open"),
            ready: row.get("n_ready"),
            started: row.get("n_started"),
            approval: row.get("n_approval"),
            unresolved: row.get("n_unresolved"),
            undelivered: row.get("n_undelivered"),
            rounds: row.get("n_rounds"),
            running: row.get("n_running"),
            awaiting: row.get("n_awaiting"),
            waits: row.get("n_waits"),
        },
        settle_seq: row.get("settle_seq"),
        event_seq: row.get("event_seq"),
        schedulable: row.get("schedulable"),
        attention: reason.map(|reason| Attention {
            reason,
            keys: keys(row.get("attention_keys")),
        }),
        failure_reason: row.get("failure_reason"),
        force_stopped: row.get("force_stopped"),
        started_at: row.get("started_at"),
        paused_at: row.get("paused_at"),
        canceling_since: row.get("canceling_since"),
        stopped_at: row.get("stopped_at"),
        completed_at: row.get("completed_at"),
    }
}

fn task(row: &Row) -> Task {
    let numbers = |column: &str| -> Vec<TaskNo> {
        let numbers: Vec<i32> = row.get(column);
        numbers.into_iter().map(TaskNo).collect()
    };
    Task {
        no: TaskNo(row.get("task_no")),
        key: TaskKey::trusted(row.get("key")),
        kind: word(row, "kind"),
        status: word(row, "status"),
        generation: row.get("generation"),
        authored_by: word(row, "authored_by"),
        mark: word_opt(row, "mark"),
        detached: row.get("detached"),
        lifetime: word(row, "lifetime"),
        wake: word(row, "wake"),
        on_failure: word(row, "on_failure"),
        fan_on_failure: word_opt(row, "fan_on_failure"),
        visibility: word(row, "visibility"),
        barrier: number(row, "barrier_no"),
        lineage: TaskNo(row.get("lineage_no")),
        tip: TaskNo(row.get("tip_no")),
        input_from: numbers("input_from"),
        result_from: numbers("result_from"),
        after_keys: row.get("after_keys"),
        remaining: row.get("remaining"),
        owner: number(row, "owner_no"),
        operation: row.get("operation_no"),
        is_tip: row.get("is_tip"),
        background: row.get("background"),
        taken_over: row.get("taken_over"),
        trace_end: row.get("trace_end"),
        context_of: number(row, "context_no"),
        tool_name: row.get("tool_name"),
        tool_alias: row.get("tool_alias"),
        timeout_ms: row.get("timeout_ms"),
        target: executor(row, "target_executor_id"),
        holder: word_opt(row, "holder"),
        resolution_digest: row.get("resolution_digest"),
        observes: number(row, "observes_no"),
        join: word_opt(row, "join_mode").map(|mode| Join {
            mode,
            k: row.get("join_k"),
            losers: word(row, "join_losers"),
            successes: row.get("join_successes"),
            pending: row.get("join_pending"),
        }),
        // Runners of the comparison author no work.
        sources: Vec::new(),
        addressed: word_opt(row, "addressed_role").map(|role| Addressed {
            role,
            executor: executor(row, "addressed_executor_id"),
        }),
        approval: word_opt(row, "approval_origin").map(|origin| ApprovalFact {
            origin,
            decided_by: row.get::<_, Option<uuid::Uuid>>("decider").map(PublicId),
            decided_at: row.get("approval_decided_at"),
        }),
        started_at: row.get("started_at"),
        claim: executor(row, "claimed_by_id").map(|by| Claim {
            by,
            at: row.get("claimed_at"),
            digest: row.get("claim_digest"),
        }),
        failure_resolution: word_opt(row, "failure_resolution"),
        error: row
            .get::<_, Option<String>>("error_key")
            .map(|key| TaskError {
                key,
                detail: row.get("error_detail"),
            }),
        is_error: row.get("is_error"),
        race_absorbed: row.get("race_absorbed"),
        settle_seq: row.get("settle_seq"),
        completed_at: row.get("completed_at"),
    }
}

fn edge(row: &Row) -> Edge {
    Edge {
        from: TaskNo(row.get("from_no")),
        to: TaskNo(row.get("to_no")),
        ordinal: row.get("ordinal"),
        structural: row.get("structural"),
        source: row.get("source"),
        state: word(row, "state"),
    }
}

fn park(row: &Row) -> Park {
    Park {
        task: TaskNo(row.get("task_no")),
        kind: word(row, "kind"),
        executor: executor(row, "executor_id"),
        pool_name: row.get("pool_name"),
        deadline_at: row.get("deadline_at"),
        timeout_ms: row.get("timeout_ms"),
        announced_timeout_ms: row.get("announced_timeout_ms"),
        effect_profile: row.get("effect_profile"),
        replayable: row.get("replayable"),
        generation: row.get("generation"),
        started_at: row.get("started_at"),
        claim: executor(row, "claimant_id").map(|by| LiveClaim {
            by,
            by_public: PublicId(row.get("claimant")),
            at: row.get("claimed_at"),
            digest: row.get("claim_digest"),
        }),
    }
}

fn item(row: &Row, run: &Run) -> Item {
    let key = || TaskKey::trusted(row.get("task_key"));
    let what = match row.get("type") {
        "turn_status" => Narrated::Run(word(row, "run_status"), word_opt(row, "attention_reason")),
        "task_status" if row.get::<_, &str>("status") == "waiting" => {
            Narrated::Task(key(), TaskStatus::Queued)
        }
        "task_status" => Narrated::Task(key(), word(row, "status")),
        "attention_required" => {
            let mut keys = keys(row.get("keys"));
            let all = run.attention.as_ref().map_or(&[][..], |a| &a.keys);
            // An item shows the first keys; those of the last are the run's.
            if row.get("overflows") && all.starts_with(&keys) {
                keys = all.to_vec();
            }
            Narrated::Attention(word(row, "reason"), keys)
        }
        "task_deadline_extended" => Narrated::Other(key()),
        _ => Narrated::Shell,
    };
    Item {
        seq: row.get("seq"),
        what,
    }
}
