//! What must hold in the whole database after every test, as SQL that lists what breaks it.
//!
//! There are no foreign keys (see the first migration), so what a key would state is stated here.
//! Each audit has a name that reads as the invariant, and a query whose rows are its breaches.

use tokio_postgres::Client;

/// Name and query: one text column, a row for each breach.
pub type Audit = (&'static str, &'static str);

/// Provisioning.
const PROVISIONING: &[Audit] = &[
    (
        "a_workspace_belongs_to_an_account",
        "SELECT 'workspace ' || workspace_id FROM workspaces w
          WHERE NOT EXISTS (SELECT FROM accounts a WHERE a.account_id = w.account_id)",
    ),
    (
        "an_agent_is_controlled_by_a_human_of_its_account",
        "SELECT 'member ' || m.member_id FROM members m
          WHERE NOT EXISTS (SELECT FROM accounts a WHERE a.account_id = m.account_id)
             OR (m.kind = 'agent' AND NOT EXISTS (
                 SELECT FROM members h WHERE h.account_id = m.account_id
                    AND h.member_id = m.controlling_human_id AND h.kind = 'human'))",
    ),
    (
        "a_grant_joins_a_member_and_a_workspace_of_one_account",
        "SELECT 'grant ' || g.workspace_id || '/' || g.member_id FROM grants g
          WHERE NOT EXISTS (SELECT FROM workspaces w
                             WHERE w.account_id = g.account_id AND w.workspace_id = g.workspace_id)
             OR NOT EXISTS (SELECT FROM members m
                             WHERE m.account_id = g.account_id AND m.member_id = g.member_id)",
    ),
    (
        "a_machine_is_managed_by_a_human_and_an_address_belongs_to_an_agent",
        "SELECT 'executor ' || e.executor_id FROM executors e
          WHERE NOT EXISTS (SELECT FROM members m WHERE m.account_id = e.account_id
                    AND m.member_id = coalesce(e.manager_id, e.agent_id)
                    AND m.kind = CASE WHEN e.agent_id IS NULL THEN 'human' ELSE 'agent' END)",
    ),
    (
        "a_revoked_executor_says_when",
        "SELECT 'executor ' || executor_id FROM executors WHERE (status = 'revoked') <> (revoked_at IS NOT NULL)",
    ),
    (
        "a_served_tool_belongs_to_an_executor",
        "SELECT 'served tool ' || s.name FROM served_tools s
          WHERE NOT EXISTS (SELECT FROM executors e
                             WHERE e.account_id = s.account_id AND e.executor_id = s.executor_id)",
    ),
    (
        "served_tools_are_numbered_without_gaps",
        "SELECT 'executor ' || executor_id FROM served_tools GROUP BY account_id, executor_id
         HAVING min(ordinal) <> 0 OR max(ordinal) <> count(*) - 1 OR count(DISTINCT ordinal) <> count(*)",
    ),
    (
        "a_token_has_an_owner_whose_epoch_it_does_not_exceed",
        "SELECT 'token ' || k.token_id FROM tokens k
      LEFT JOIN members m ON m.account_id = k.account_id AND m.member_id = k.member_id
      LEFT JOIN executors e ON e.account_id = k.account_id AND e.executor_id = k.executor_id
          WHERE k.credential_epoch > coalesce(m.credential_epoch, e.credential_epoch, 0)",
    ),
    (
        "an_owner_has_at_most_one_token_of_its_current_epoch",
        "SELECT 'owner ' || coalesce('member ' || k.member_id, 'executor ' || k.executor_id) FROM tokens k
          WHERE k.revoked_at IS NULL
       GROUP BY k.account_id, k.member_id, k.executor_id, k.credential_epoch HAVING count(*) > 1",
    ),
];

/// Every audit, by subject.
pub const AUDITS: &[&[Audit]] = &[PROVISIONING, super::audit_graph::GRAPH];

/// Runs every audit; panics with the name and the rows of each that is breached.
pub async fn check(client: &Client) {
    let mut breaches = Vec::new();
    for (name, sql) in AUDITS.iter().copied().flatten() {
        let rows = client
            .query(*sql, &[])
            .await
            .unwrap_or_else(|e| panic!("the audit {name} does not run: {e:?}"));
        breaches.extend(
            rows.iter()
                .map(|row| format!("{name}: {}", row.get::<_, String>(0))),
        );
    }
    assert!(
        breaches.is_empty(),
        "the database breaks:\n{}",
        breaches.join("\n")
    );
}
