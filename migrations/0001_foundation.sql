-- The foundation: provisioning, the graph, parks, events, receipts, sweeping.
--
-- The account rule (architecture.md §3): every table of an account leads its primary key with
-- account_id, every unique index contains it, and no transaction touches two accounts. The
-- tables of the installation itself are listed in the catalogue test and have no account.
--
-- No foreign keys point at runs or between hot tables: their key-share locks deadlock two runs
-- that signal each other, and cost 2-3 % each (measured). One code path writes; an audit test
-- reads the whole database instead.
--
-- JSON that is served back or digested is text, exactly (conventions.md §10), never jsonb.

-- The one clock. A server started with NEXUS_TEST_CLOCK=1 replaces the body by one that adds
-- test_clock.offset_ms; in production the planner inlines this to clock_timestamp().
CREATE FUNCTION nexus_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS
$$ SELECT clock_timestamp() $$;

-- A write that did not meet exactly the rows it decided on aborts its transaction in the server,
-- so that a COMMIT already sent behind it in the pipeline becomes a ROLLBACK.
CREATE FUNCTION nexus_expect(actual bigint, expected bigint, what text) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    IF actual <> expected THEN
        RAISE EXCEPTION '%: wrote % rows, expected %', what, actual, expected USING ERRCODE = 'NX001';
    END IF;
    RETURN actual;
END $$;

------------------------------------------------------------------ the installation

CREATE TABLE test_clock (only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row), offset_ms bigint NOT NULL DEFAULT 0);
INSERT INTO test_clock DEFAULT VALUES;

CREATE TABLE operator_tokens (
    token_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lookup       text NOT NULL UNIQUE,
    salt         bytea NOT NULL,
    secret_hash  bytea NOT NULL,
    label        text NOT NULL DEFAULT '',
    expires_at   timestamptz,
    revoked_at   timestamptz,
    created_at   timestamptz NOT NULL DEFAULT nexus_now()
);

CREATE TABLE replicas (
    replica_id   uuid PRIMARY KEY,
    version      text NOT NULL,
    roles        text[] NOT NULL,
    heartbeat_at timestamptz NOT NULL,
    draining     boolean NOT NULL DEFAULT false
);

CREATE TABLE sweeper_settings (only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row), partitions int NOT NULL DEFAULT 1
    CHECK (partitions IN (1, 2, 4, 8, 16, 32, 64)));
INSERT INTO sweeper_settings DEFAULT VALUES;

CREATE TABLE sweeper_leases (
    name         text PRIMARY KEY,
    holder       uuid NOT NULL,
    token        bigint NOT NULL,
    expires_at   timestamptz NOT NULL
);

CREATE TABLE sweeps (
    name         text PRIMARY KEY,
    last_run_at  timestamptz NOT NULL,
    rows         bigint NOT NULL,
    lag_ms       bigint NOT NULL
);

------------------------------------------------------------------ provisioning

CREATE TABLE accounts (
    account_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    public_id    uuid NOT NULL,
    name         text NOT NULL,
    status       text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'suspended')),
    created_at   timestamptz NOT NULL DEFAULT nexus_now(),
    UNIQUE (public_id, account_id)
);

CREATE TABLE workspaces (
    account_id   bigint NOT NULL,
    workspace_id bigint GENERATED ALWAYS AS IDENTITY,
    public_id    uuid NOT NULL,
    name         text NOT NULL,
    archived_at  timestamptz,
    created_at   timestamptz NOT NULL DEFAULT nexus_now(),
    PRIMARY KEY (account_id, workspace_id),
    UNIQUE (public_id, account_id)
);

CREATE TABLE members (
    account_id           bigint NOT NULL,
    member_id            bigint GENERATED ALWAYS AS IDENTITY,
    public_id            uuid NOT NULL,
    kind                 text NOT NULL CHECK (kind IN ('human', 'agent')),
    handle               text NOT NULL,
    display_name         text,
    controlling_human_id bigint,
    status               text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'suspended')),
    credential_epoch     int NOT NULL DEFAULT 1 CHECK (credential_epoch >= 1),
    created_at           timestamptz NOT NULL DEFAULT nexus_now(),
    PRIMARY KEY (account_id, member_id),
    UNIQUE (public_id, account_id),
    UNIQUE (account_id, handle),
    CHECK ((kind = 'agent') = (controlling_human_id IS NOT NULL))
);

CREATE TABLE grants (
    account_id   bigint NOT NULL,
    workspace_id bigint NOT NULL,
    member_id    bigint NOT NULL,
    access       text NOT NULL CHECK (access IN ('read', 'write')),
    created_at   timestamptz NOT NULL DEFAULT nexus_now(),
    PRIMARY KEY (account_id, workspace_id, member_id)
);
-- What a member can read, listed from the member's side.
CREATE INDEX grants_by_member ON grants (account_id, member_id, workspace_id);

CREATE TABLE executors (
    account_id              bigint NOT NULL,
    executor_id             bigint GENERATED ALWAYS AS IDENTITY,
    public_id               uuid NOT NULL,
    kind                    text NOT NULL CHECK (kind IN ('agent_application', 'runner', 'tool_provider')),
    manager_id              bigint,           -- machines: the human who manages it
    agent_id                bigint,           -- agent applications: their agent
    registration_identifier text NOT NULL,    -- machines: what the installer says; applications: empty, their key is the agent
    assignment_scope        text CHECK (assignment_scope IN ('user_private', 'account_wide')),
    display_name            text NOT NULL,
    status                  text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'revoked')),
    credential_epoch        int NOT NULL DEFAULT 1 CHECK (credential_epoch >= 1),
    shutdown_at             timestamptz,      -- shutdown asked for
    shutdown_generation     int,              -- the epoch it acknowledged with, once nothing is left
    revoked_at              timestamptz,
    revoke_settled_at       timestamptz,      -- its unclaimed rows have been failed
    environment             text NOT NULL DEFAULT '{}',
    documents               text NOT NULL DEFAULT '[]',
    announced_at            timestamptz,
    last_seen_at            timestamptz,
    online_connection       uuid,             -- presence mark: connection, the replica that serves it, since when
    online_replica          uuid,
    connected_at            timestamptz,
    created_at              timestamptz NOT NULL DEFAULT nexus_now(),
    PRIMARY KEY (account_id, executor_id),
    UNIQUE (public_id, account_id),
    CHECK ((kind = 'agent_application') = (agent_id IS NOT NULL)),
    CHECK ((kind = 'agent_application') = (manager_id IS NULL)),
    CHECK ((kind = 'agent_application') = (assignment_scope IS NULL))
);
-- At most one executor that is not revoked per registration key, blind to kind.
CREATE UNIQUE INDEX executors_machine_key ON executors (account_id, manager_id, registration_identifier)
    WHERE status = 'active' AND manager_id IS NOT NULL;
CREATE UNIQUE INDEX executors_agent_key ON executors (account_id, agent_id)
    WHERE status = 'active' AND agent_id IS NOT NULL;
-- Revocations and shutdowns that still have rows to settle.
CREATE INDEX executors_leaving ON executors (account_id, executor_id)
    WHERE (revoked_at IS NOT NULL AND revoke_settled_at IS NULL) OR (shutdown_at IS NOT NULL AND shutdown_generation IS NULL);

CREATE TABLE served_tools (
    account_id     bigint NOT NULL,
    executor_id    bigint NOT NULL,
    name           text NOT NULL,
    ordinal        int NOT NULL,
    effect_profile text NOT NULL,
    replayable     boolean NOT NULL,
    timeout_ms     bigint,
    description    text,
    input_schema   text,
    PRIMARY KEY (account_id, executor_id, name)
);
CREATE INDEX served_tools_by_name ON served_tools (account_id, name, executor_id);

-- Accounts (member_id 0) and members whose suspension still has live runs to stop: written with the
-- suspension, gone once none is left, or on resume.
CREATE TABLE lost_authority (
    account_id   bigint NOT NULL,
    member_id    bigint NOT NULL,
    lost_at      timestamptz NOT NULL DEFAULT nexus_now(),
    PRIMARY KEY (account_id, member_id)
);

CREATE TABLE tokens (
    account_id       bigint NOT NULL,
    token_id         bigint GENERATED ALWAYS AS IDENTITY,
    lookup           text NOT NULL,
    salt             bytea NOT NULL,
    secret_hash      bytea NOT NULL,
    plane            text NOT NULL CHECK (plane IN ('member', 'executor_transport')),
    member_id        bigint,
    executor_id      bigint,
    credential_epoch int NOT NULL,
    expires_at       timestamptz,
    revoked_at       timestamptz,
    last_used_at     timestamptz,
    created_at       timestamptz NOT NULL DEFAULT nexus_now(),
    PRIMARY KEY (account_id, token_id),
    UNIQUE (lookup, account_id),
    CHECK ((plane = 'member') = (member_id IS NOT NULL)),
    CHECK ((plane = 'executor_transport') = (executor_id IS NOT NULL))
);
CREATE INDEX tokens_by_owner ON tokens (account_id, executor_id, member_id);

------------------------------------------------------------------ the graph

CREATE SEQUENCE run_id_seq;
-- The inbox cursor: drawn at dispatch; a retry draws a new one.
CREATE SEQUENCE park_no_seq CACHE 1;

CREATE TABLE runs (
    account_id        bigint NOT NULL,
    run_id            bigint NOT NULL,
    public_id         uuid NOT NULL,
    workspace_id      bigint NOT NULL,
    creator_id        bigint NOT NULL,      -- its write standing is the run's
    principal_id      bigint NOT NULL,      -- the answering principal, frozen: whose executors may serve
    declaring_agent_id bigint,              -- the agent that created it, if one did
    status            text NOT NULL CHECK (status IN
                        ('pending', 'running', 'paused', 'needs_attention', 'canceling', 'completed', 'canceled')),
    revision          int NOT NULL DEFAULT 1,
    deliverable_no    int,
    mainline_tail_no  int,
    approval_mode     text NOT NULL CHECK (approval_mode IN ('bypass', 'ask', 'rules')),
    approval_rules    text,
    prompt_mechanism  text,
    model_selection   text,
    fallback_models   text,
    default_runner_id bigint,
    billing_subject   text,
    -- Counters, kept by the UPDATE that counts the settle: "is anything ready, started, unresolved?"
    n_tasks           int NOT NULL DEFAULT 0,
    n_open            int NOT NULL DEFAULT 0,   -- not terminal
    n_ready           int NOT NULL DEFAULT 0,   -- queued, nothing open before it
    n_started         int NOT NULL DEFAULT 0,   -- running, dispatched, awaiting_input
    n_approval        int NOT NULL DEFAULT 0,   -- at needs_approval
    n_unresolved      int NOT NULL DEFAULT 0,   -- halt failures nobody adjudicated
    n_undelivered     int NOT NULL DEFAULT 0,   -- background tips not yet delivered
    round_seq         int NOT NULL DEFAULT 0,
    settle_seq        int NOT NULL DEFAULT 0,
    event_seq         bigint NOT NULL DEFAULT 0,
    schedulable       boolean NOT NULL DEFAULT false, -- a scheduling pass is owed
    attention_reason  text,
    attention_keys    text,                 -- canonical JSON array of task keys, all of them
    failure_reason    text,
    force_stopped     boolean NOT NULL DEFAULT false,
    created_at        timestamptz NOT NULL,
    started_at        timestamptz,
    paused_at         timestamptz,
    canceling_since   timestamptz,
    stopped_at        timestamptz,
    delivered_at      timestamptz,
    completed_at      timestamptz,
    deleted_at        timestamptz,
    PRIMARY KEY (account_id, run_id),
    UNIQUE (account_id, public_id),
    CHECK ((status IN ('completed', 'canceled')) = (completed_at IS NOT NULL)),
    CHECK ((status = 'paused') <= (paused_at IS NOT NULL)),
    CHECK (least(n_tasks, n_open, n_ready, n_started, n_approval, n_unresolved, n_undelivered) >= 0)
) WITH (
    -- Every settle updates its run: room for HOT updates in the page, and vacuum by count of
    -- dead rows, since a share of a large history would come too late.
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000
);
CREATE INDEX runs_by_workspace ON runs (account_id, workspace_id, public_id);
-- Live runs, whatever the history: completed_at is written once, so other updates stay HOT.
CREATE INDEX runs_live ON runs (account_id, run_id) WHERE completed_at IS NULL;
-- Rarely true, so an update that leaves it alone stays HOT. Of mixed directions, so that no other
-- index gives this order: with stale statistics the planner walked every run by another key.
CREATE INDEX runs_schedulable ON runs (account_id DESC, run_id) WHERE schedulable;

CREATE TABLE tasks (
    account_id          bigint NOT NULL,
    run_id              bigint NOT NULL,
    task_no             int NOT NULL,
    key                 text NOT NULL,
    kind                text NOT NULL CHECK (kind IN ('model_task', 'tool_task', 'await_task', 'join_task', 'delegation_task')),
    status              text NOT NULL CHECK (status IN ('queued', 'needs_approval', 'running', 'dispatched', 'awaiting_input',
                          'completed', 'failed', 'timed_out', 'uncertain', 'canceled', 'skipped')),
    generation          int NOT NULL DEFAULT 0,
    authored_by         text NOT NULL CHECK (authored_by IN ('author', 'model', 'kernel')),
    mark                text CHECK (mark IN ('round', 'branch')),
    detached            boolean NOT NULL DEFAULT false,
    lifetime            text NOT NULL CHECK (lifetime IN ('turn', 'conversation')),
    wake                text NOT NULL CHECK (wake IN ('auto', 'passive')),
    on_failure          text NOT NULL CHECK (on_failure IN ('absorb', 'propagate', 'halt')),
    fan_on_failure      text CHECK (fan_on_failure IN ('absorb', 'propagate')),
    visibility          text NOT NULL CHECK (visibility IN ('visible', 'collapsed', 'hidden')),
    barrier_no          int,
    expansion_parent_no int,
    owner_no            int,
    lineage_no          int NOT NULL,        -- the authored row this one stands for
    tip_no              int NOT NULL,        -- on an authored row: what stands for it now
    input_from          int[] NOT NULL DEFAULT '{}',
    result_from         int[] NOT NULL DEFAULT '{}',
    after_keys          text[] NOT NULL DEFAULT '{}', -- current dependency keys, as every read and event shows them
    remaining           int NOT NULL,        -- incoming edges still open
    -- tools
    tool_name           text,
    tool_alias          text,
    tool_call_id        text,
    timeout_ms          bigint,              -- authored
    target_executor_id  bigint,              -- the accepted runner
    -- awaits
    holder              text CHECK (holder IN ('token', 'person', 'kernel')),
    -- joins
    join_mode           text CHECK (join_mode IN ('all', 'any', 'quorum')),
    join_k              int,
    join_losers         text CHECK (join_losers IN ('cancel', 'run_out')),
    join_successes      int,
    join_pending        int,
    -- once started
    addressed_role      text CHECK (addressed_role IN ('agent_application', 'runner', 'tool_provider')),
    addressed_executor_id bigint,
    approval_origin     text,
    approval_decided_by bigint,
    approval_decided_at timestamptz,
    started_at          timestamptz,
    -- once settled: the claim facts copied from the park, and what it came to
    claimed_by_id       bigint,
    claimed_at          timestamptz,
    claim_digest        bytea,
    failure_resolution  text CHECK (failure_resolution IN ('abandoned', 'canceled')),
    error_key           text,
    error_detail        text,
    is_error            boolean NOT NULL DEFAULT false,
    race_absorbed       boolean NOT NULL DEFAULT false,
    settle_seq          int,
    completed_at        timestamptz,
    PRIMARY KEY (account_id, run_id, task_no),
    UNIQUE (account_id, run_id, key),
    CHECK ((status IN ('completed', 'failed', 'timed_out', 'uncertain', 'canceled', 'skipped')) = (completed_at IS NOT NULL)),
    CHECK (remaining >= 0),
    CHECK (array_position(after_keys, NULL) IS NULL)
) WITH (
    -- No index names a column that an update touches: every status write is HOT (a partial index
    -- on status made none of them so).
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000
);

-- Written once, at birth.
CREATE TABLE task_inputs (
    account_id   bigint NOT NULL,
    run_id       bigint NOT NULL,
    task_no      int NOT NULL,
    tool_input   text,          -- canonical JSON object
    definition   text,          -- canonical JSON: what the other verbs were authored with
    context      text,          -- frozen child-authoring context
    PRIMARY KEY (account_id, run_id, task_no)
);

-- Written once per generation, at the settle.
CREATE TABLE task_results (
    account_id        bigint NOT NULL,
    run_id            bigint NOT NULL,
    task_no           int NOT NULL,
    generation        int NOT NULL,
    content           text,     -- canonical JSON array of blocks; null: none
    structured        text,     -- canonical JSON; SQL null: absent (JSON null is the text null)
    title             text,
    metadata          text,     -- canonical JSON object
    digest            bytea,    -- of an accepted commit
    selection         text,     -- joins: canonical JSON {joined, outcomes, selected}
    PRIMARY KEY (account_id, run_id, task_no, generation)
);

CREATE TABLE edges (
    account_id   bigint NOT NULL,
    run_id       bigint NOT NULL,
    from_no      int NOT NULL,
    to_no        int NOT NULL,
    ordinal      int NOT NULL,  -- authoring order among the edges of its head
    structural   boolean NOT NULL,
    state        text NOT NULL CHECK (state IN ('open', 'met', 'skip')),
    PRIMARY KEY (account_id, run_id, from_no, to_no)
) WITH (fillfactor = 85);
CREATE INDEX edges_into ON edges (account_id, run_id, to_no);

-- Failures that a person may retry or abandon (runs.md §7.2): the small table of open ones, so
-- that no hold has to read settled history.
CREATE TABLE open_failures (
    account_id   bigint NOT NULL,
    run_id       bigint NOT NULL,
    task_no      int NOT NULL,
    PRIMARY KEY (account_id, run_id, task_no)
);

-- One row per started, unsettled tool call, ask, approval, wait. Deleted on settle.
CREATE TABLE parks (
    account_id   bigint NOT NULL,
    run_id       bigint NOT NULL,
    task_no      int NOT NULL,
    park_no      bigint NOT NULL DEFAULT nextval('park_no_seq'),
    kind         text NOT NULL CHECK (kind IN ('tool_call', 'ask', 'approval', 'wait')),
    executor_id  bigint,              -- the addressee
    pool_name    text,                -- or the tool whose providers form the pool
    deadline_at  timestamptz NOT NULL, -- the one clock
    due_at       timestamptz NOT NULL, -- <= deadline_at; when the sweeper looks next
    timeout_ms   bigint NOT NULL,     -- the budget; never moves
    announced_timeout_ms bigint,      -- frozen at start: bounds extensions
    effect_profile text,              -- frozen at start
    replayable   boolean NOT NULL,
    generation   int NOT NULL,
    started_at   timestamptz NOT NULL,
    resolution_digest bytea,          -- an authored ask's token
    claim_digest bytea,
    claim_key    bytea,               -- SHA-256 of the Idempotency-Key it was claimed under
    claimant_id  bigint,
    claimed_at   timestamptz,
    clock_frozen boolean NOT NULL DEFAULT false,
    run_shard    smallint NOT NULL CHECK (run_shard BETWEEN 0 AND 63),
    PRIMARY KEY (account_id, run_id, task_no),
    CHECK ((claimed_at IS NULL) = (claim_digest IS NULL) AND (claimed_at IS NULL) = (claimant_id IS NULL))
) WITH (
    -- Insert, claim, delete: the table stays as small as the open work if dead rows go at once.
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000
);
-- The inbox: open work only, whatever the history. Claim and extend touch no indexed column.
CREATE INDEX parks_inbox ON parks (account_id, executor_id, park_no) WHERE executor_id IS NOT NULL;
CREATE INDEX parks_pool ON parks (account_id, pool_name, park_no) WHERE executor_id IS NULL;
-- park_no breaks ties, so that a sweep can go on behind a page of rows it cannot act on, even when
-- thousands are due at one instant.
CREATE INDEX parks_due ON parks (due_at, park_no) INCLUDE (run_shard) WHERE NOT clock_frozen;

------------------------------------------------------------------ feeds, receipts, files

-- Contiguous from 1 per host; a host is a standalone run's run_id.
CREATE TABLE run_events (
    account_id   bigint NOT NULL,
    host_id      bigint NOT NULL,
    seq          bigint NOT NULL,
    type         text NOT NULL,
    payload      text NOT NULL,
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (account_id, host_id, seq)
);

-- Idempotency (conventions.md §8): written in the transaction of the effect.
CREATE TABLE receipts (
    account_id   bigint NOT NULL,
    receipt_id   bigint GENERATED ALWAYS AS IDENTITY,
    door         text NOT NULL,
    scope_id     bigint NOT NULL,    -- workspace, run or executor, as the door says
    caller_id    bigint NOT NULL,    -- 0 where callers share the scope
    key          text NOT NULL,
    fingerprint  bytea NOT NULL,
    run_id       bigint,
    body         text NOT NULL,
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (account_id, receipt_id),
    UNIQUE (account_id, door, scope_id, caller_id, key)
);
CREATE INDEX receipts_by_run ON receipts (account_id, run_id) WHERE run_id IS NOT NULL;
CREATE INDEX receipts_by_age ON receipts (created_at);

CREATE TABLE uploads (
    account_id   bigint NOT NULL,
    upload_id    bigint GENERATED ALWAYS AS IDENTITY,
    public_id    uuid NOT NULL,
    filename     text NOT NULL,
    content_type text NOT NULL,
    byte_size    bigint NOT NULL,
    sha256       bytea,              -- null while its bytes arrive: nothing may bind it yet
    store        text NOT NULL,      -- where the bytes are: postgres, or the object store's URL
    creator_executor_id bigint,
    creator_member_id   bigint,
    bound_at     timestamptz,        -- first bound; unbound ones are reclaimed after a day
    created_at   timestamptz NOT NULL DEFAULT nexus_now(),
    PRIMARY KEY (account_id, upload_id),
    UNIQUE (public_id, account_id)
);
CREATE INDEX uploads_unbound ON uploads (created_at) WHERE bound_at IS NULL;

CREATE TABLE upload_bindings (
    account_id   bigint NOT NULL,
    run_id       bigint NOT NULL,
    upload_id    bigint NOT NULL,
    task_no      int NOT NULL,
    PRIMARY KEY (account_id, run_id, upload_id, task_no)
);

CREATE TABLE upload_chunks (
    account_id   bigint NOT NULL,
    upload_id    bigint NOT NULL,
    ordinal      int NOT NULL,
    bytes        bytea NOT NULL,     -- 256 KiB each, but for the last one
    PRIMARY KEY (account_id, upload_id, ordinal)
);
ALTER TABLE upload_chunks ALTER COLUMN bytes SET STORAGE EXTERNAL; -- media does not compress; slices stay cheap
