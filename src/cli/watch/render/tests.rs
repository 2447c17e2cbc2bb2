//! Snapshots of the tree.

use super::*;

fn run(status: &str, tasks: &str) -> Run {
    let text = format!(
        r#"{{"public_id":"01a","status":"{status}","started_at":"2030-01-01T00:00:00Z",
            "tasks":[{tasks}]}}"#
    );
    serde_json::from_str(&text).unwrap()
}

fn at(seconds: i64) -> Timestamp {
    let zero: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    crate::domain::time::plus_ms(zero, seconds * 1000)
}

fn task(key: &str, status: &str, more: &str) -> String {
    format!(r#"{{"key":"{key}","kind":"tool_task","status":"{status}"{more}}}"#)
}

fn demo() -> Run {
    let started = r#","started_at":"2030-01-01T00:00:01Z""#;
    let held = r#","claimed_by":{"executor_public_id":"x"}"#;
    let after = r#","after":["echo","add","slow","bad"]"#;
    let failed = r#","completed_at":"2030-01-01T00:00:02Z","error":{"key":"tool_failed","detail":"no\u001b[2Jway"}"#;
    let done = r#","completed_at":"2030-01-01T00:00:04Z""#;
    let rows = [
        task("echo", "completed", &format!(r#","tool_name":"echo"{started}{done}"#)),
        task("add", "completed", &format!(r#","tool_name":"add","is_error":true{started}{done}"#)),
        task("slow", "dispatched", &format!(r#","tool_name":"sleep"{started}{held}"#)),
        task("bad", "failed", &format!(r#","tool_name":"fail"{started}{failed}"#)),
        task("park", "dispatched", &format!(r#","tool_name":"add"{started}"#)),
        task("sum", "waiting", &format!(r#","tool_name":"add"{after}"#)),
        task("left", "needs_approval", r#","tool_name":"write_note","after":["sum"]"#),
        task("right", "hibernating", r#","after":["sum"]"#),
        r#"{"key":"say","kind":"model_task","status":"waiting","model":"dev/sim","after":["left","right"]}"#
            .to_owned(),
    ];
    run("running", &rows.join(","))
}

#[test]
fn the_tree_shows_state_tool_time_error_and_progress() {
    let progress = Progress::from([
        (
            "slow".to_owned(),
            "10 %\n\u{1b}[31m42 %\u{7}\n\n".to_owned(),
        ),
        ("bad".to_owned(), "stale".to_owned()),
    ]);
    let text = render(&demo(), &progress, at(75), Look::PLAIN);
    insta::assert_snapshot!(text, @r"
    run 01a  running  1m15s  3/9 settled
    ├─ ✔ echo  echo  3s
    ├─ ✔ add  add  3s  answered an error
    ├─ ● slow  sleep  1m14s  [31m42 %
    ├─ ✖ bad  fail  1s  tool_failed: no [2Jway
    ├─ ◌ park  add  1m14s  unclaimed
    └─ ○ sum  add  ⟵ echo, add, slow +1
       ├─ ◆ left  write_note  needs approval
       ├─ · right  tool  hibernating
       └─ ○ say  dev/sim  ⟵ left, right
    ");
}

#[test]
fn a_held_run_says_what_it_waits_for() {
    let mut run = run("needs_attention", &task("a", "uncertain", ""));
    run.attention = serde_json::from_str(
        r#"{"reason":"halt_failure","blocked_task_keys":["a","b"],"blocked_task_overflow":3}"#,
    )
    .unwrap();
    insta::assert_snapshot!(render(&run, &Progress::new(), at(1), Look::PLAIN), @r"
    run 01a  needs_attention  1s  1/1 settled
    └─ ‼ a  tool
    waits for a person: halt_failure  a, b and 3 more
    ");
}

#[test]
fn rows_are_cut_to_the_width_by_columns_and_colours_do_not_count() {
    let run = run("running", &task("k", "dispatched", r#","tool_name":"t""#));
    let progress = Progress::from([("k".to_owned(), "進捗進捗進捗進捗".to_owned())]);
    let look = |color| Look {
        color,
        width: 30,
        height: 10,
    };
    let plain = render(&run, &progress, at(1), look(false));
    for line in plain.lines() {
        assert!(columns(line) <= 30, "{line}");
    }
    let mut colored = render(&run, &progress, at(1), look(true));
    assert!(colored.contains("\x1b[36m"));
    for code in [0, 1, 2, 31, 32, 33, 36] {
        colored = colored.replace(&format!("\x1b[{code}m"), "");
    }
    assert_eq!(colored, plain);
    insta::assert_snapshot!(plain, @r"
    run 01a  running  1s  0/1 set…
    └─ ◌ k  t  unclaimed  進捗進…
    ");
}

#[test]
fn a_tall_run_folds_what_is_quiet_and_keeps_what_is_not() {
    let mut rows = Vec::new();
    for n in 0..1_000 {
        rows.push(task(&format!("done{n}"), "completed", ""));
    }
    rows.push(task("bad", "failed", ""));
    rows.push(task("live", "running", ""));
    for n in 0..1_000 {
        rows.push(task(&format!("wait{n}"), "waiting", ""));
    }
    let run = run("running", &rows.join(","));
    let look = Look {
        height: 8,
        ..Look::PLAIN
    };
    insta::assert_snapshot!(render(&run, &Progress::new(), at(1), look), @r"
    run 01a  running  1s  1001/2002 settled
    ⋮  1000 more
    ├─ ✖ bad  tool
    ├─ ● live  tool
    ⋮  1000 more
    ");
    let tiny = Look { height: 3, ..look };
    assert_eq!(
        render(&run, &Progress::new(), at(1), tiny).lines().count(),
        3
    );
}

#[test]
fn changes_are_a_line_each_and_only_what_changed() {
    let before = demo();
    let mut after = demo();
    after.tasks[2].status = TaskStatus::Completed;
    after.tasks[2].completed_at = Some(at(8));
    after.status = RunStatus::Completed;
    after.completed_at = Some(at(9));
    assert_eq!(changes(Some(&before), &before, at(5)), Vec::<String>::new());
    assert_eq!(
        changes(Some(&before), &after, at(100)),
        [
            "slow sleep  completed  7s",
            "run 01a  completed  9s  4/9 settled"
        ]
    );
    assert_eq!(changes(None, &before, at(5)).len(), before.tasks.len() + 1);
}

#[test]
fn times_are_short_and_never_negative() {
    assert_eq!(elapsed(at(10), at(3)), "0s");
    assert_eq!(elapsed(at(0), at(59)), "59s");
    assert_eq!(elapsed(at(0), at(125)), "2m05s");
    assert_eq!(elapsed(at(0), at(3_725)), "1h02m");
}
