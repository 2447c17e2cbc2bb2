//! Append (`runs.md` §5): its checks in their order, and where its rows hang.

use super::check;

#[test]
fn checks_in_order() {
    check(
        "
        executor p1 provider t
        steps [A(q), T(a)]
        append [T(x)] revision 2 under k1         -> stale_revision
        append [T(x)] under k1                    -> appended; x waiting
        append [T(x)] under k1                    -> replayed
        append [T(y)] under k1                    -> idempotency_envelope_mismatch
        append [T(x)]                             -> duplicate_task_key
        append [W(w→nothing)]                     -> wait_target_not_found
        append [T(y)] resolve nothing             -> unknown_await
        append [A(z)] resolve z                   -> await_not_resolvable
        append [T(y)] resolve q failed            -> unsupported_resolve_outcome
        append [T(y)] resolve q,q                 -> await_not_resolvable
        append resolve q                          -> appended; q completed, a started
        ",
    );
}
