//! The whole table of `engine.md` §4.

use super::script::blank;
use crate::domain::TaskNo;
use crate::domain::words::{FailureResolution, OnFailure, TaskKind, TaskStatus};
use crate::engine::facts::TaskError;
use crate::engine::settlement::{Settlement, is_candidate, is_unresolved, settlement};

/// status, resolution, policy, and what else is so → settlement, candidate, unresolved.
const TABLE: &str = "
    queued         -         any       -           -> pending  - -
    needs_approval -         any       -           -> pending  - -
    running        -         any       -           -> pending  - -
    dispatched     -         any       -           -> pending  - -
    awaiting_input -         any       -           -> pending  - -
    completed      -         any       -           -> success  - -
    completed      -         any       is_error    -> success  - -
    failed         -         absorb    -           -> resolved - -
    failed         -         propagate -           -> skip     candidate -
    failed         -         halt      -           -> pending  candidate unresolved
    failed         -         halt      absorbed    -> resolved - -
    failed         abandoned absorb    -           -> resolved - -
    failed         abandoned propagate -           -> resolved - -
    failed         abandoned halt      -           -> resolved - -
    timed_out      -         absorb    -           -> resolved - -
    timed_out      -         propagate -           -> skip     candidate -
    timed_out      -         halt      -           -> pending  candidate unresolved
    timed_out      -         halt      absorbed    -> resolved - -
    timed_out      abandoned any       -           -> resolved - -
    uncertain      -         absorb    -           -> resolved - -
    uncertain      -         propagate -           -> skip     candidate -
    uncertain      -         halt      -           -> pending  candidate unresolved
    uncertain      -         halt      absorbed    -> resolved - -
    uncertain      abandoned any       -           -> resolved - -
    canceled       canceled  any       -           -> resolved - -
    canceled       -         any       stopped     -> skip     - -
    canceled       -         absorb    by_owner    -> resolved - -
    canceled       -         propagate by_owner    -> skip     - -
    canceled       -         halt      by_owner    -> skip     - -
    skipped        -         any       -           -> skip     - -
";

#[test]
fn a_state_means_one_thing_to_a_consumer() {
    for line in TABLE.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [
            status,
            resolution,
            policy,
            so,
            "->",
            wanted,
            candidate,
            unresolved,
        ] = words[..]
        else {
            panic!("{line}");
        };
        let policies = match policy {
            "any" => OnFailure::ALL.to_vec(),
            word => vec![word.parse().unwrap()],
        };
        for on_failure in policies {
            let mut task = blank(TaskNo(1), "a", TaskKind::Tool);
            task.status = status.parse().unwrap();
            task.failure_resolution = (resolution != "-").then(|| resolution.parse().unwrap());
            task.on_failure = on_failure;
            task.race_absorbed = so == "absorbed";
            task.is_error = so == "is_error";
            let key = match so {
                "stopped" => Some("run_canceled"),
                "by_owner" => Some("operation_canceled"),
                _ => None,
            };
            task.error = key.map(|key| TaskError {
                key: key.to_owned(),
                detail: None,
            });
            let said = match settlement(&task) {
                Settlement::Pending => "pending",
                Settlement::Success => "success",
                Settlement::Resolved => "resolved",
                Settlement::Skip => "skip",
            };
            assert_eq!(said, wanted, "{line} ({on_failure})");
            assert_eq!(
                is_candidate(&task),
                candidate != "-",
                "{line} ({on_failure})"
            );
            assert_eq!(
                is_unresolved(&task),
                unresolved != "-",
                "{line} ({on_failure})"
            );
        }
    }
}

#[test]
fn the_table_names_every_status_and_resolution() {
    for status in TaskStatus::ALL {
        assert!(TABLE.contains(&format!("    {status} ")), "{status}");
    }
    for resolution in FailureResolution::ALL {
        assert!(TABLE.contains(&format!(" {resolution} ")), "{resolution}");
    }
}
