//! The approval stage (`runs.md` §12): what the run's mode and rules say of a call that is ready.
//!
//! Pure: rules are data, frozen at create. Does not know who decides a parked call.

use super::facts::Task;
use crate::domain::json::{Canonical, Value};
use crate::domain::payload::{DETAIL_BYTES, cut};
use crate::domain::words::{ApprovalMode, ApprovalOrigin, AuthoredBy};

/// The most bytes of a run's rules, canonical.
pub const MAX_RULES: usize = 65_536;

/// What a rule does with a call that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Allow,
    Ask,
    Deny,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    tools: Vec<String>,
    path: Option<Vec<String>>,
    matching: Option<String>,
    reason: Option<String>,
    verdict: Word,
    origin: AuthoredBy,
}

/// The rules of a run, in written order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

/// Which rule is no rule, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{spot}: {why}")]
pub struct BadRule {
    /// Where: `run.approval_rules[2].match`.
    pub spot: String,
    /// What is allowed there.
    pub why: &'static str,
}

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It starts.
    Grant(ApprovalOrigin),
    /// It rests until somebody decides.
    Park,
    /// It fails, with this detail.
    Deny(Option<String>),
}

impl Rules {
    /// Reads rules, with their canonical text.
    ///
    /// # Errors
    /// The first thing that is no rule.
    pub fn read(value: &Value) -> Result<(Self, Canonical), BadRule> {
        let bad = |spot: &str, why| BadRule {
            spot: format!("run.approval_rules{spot}"),
            why,
        };
        let list = value
            .as_array()
            .ok_or_else(|| bad("", "takes an array of rules"))?;
        let text = value
            .canonical()
            .map_err(|_| bad("", "takes texts and numbers that can be stored"))?;
        if text.len() > MAX_RULES {
            return Err(bad("", "takes at most 65,536 bytes of canonical JSON"));
        }
        let rules = list.iter().enumerate().map(|(at, rule)| {
            read_rule(rule).map_err(|(member, why)| bad(&format!("[{at}]{member}"), why))
        });
        Ok((Self(rules.collect::<Result<_, _>>()?), text))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn read_rule(rule: &Value) -> Result<Rule, (&'static str, &'static str)> {
    const MEMBERS: [&str; 6] = ["tool", "verdict", "path", "match", "reason", "origin"];
    let members = rule.as_object().ok_or(("", "takes an object"))?;
    if members.keys().any(|name| !MEMBERS.contains(&name.as_str())) {
        return Err(("", "takes tool, verdict, path, match, reason and origin"));
    }
    let text = |name: &str| {
        members
            .get(name)
            .filter(|v| !v.is_null())
            .map(Value::as_str)
    };
    let tools = match text("tool") {
        Some(Some(globs)) if !globs.is_empty() => globs.split('|').map(str::to_owned).collect(),
        _ => return Err((".tool", "takes globs of tool names, separated by |")),
    };
    let verdict = match text("verdict").flatten() {
        Some("allow") => Word::Allow,
        Some("ask") => Word::Ask,
        Some("deny") => Word::Deny,
        _ => return Err((".verdict", "takes `allow`, `ask` or `deny`")),
    };
    let path = match text("path") {
        None => None,
        Some(Some(path)) if path.split('.').all(|part| !part.is_empty()) => {
            Some(path.split('.').map(str::to_owned).collect())
        }
        Some(_) => return Err((".path", "takes a dotted path without empty parts")),
    };
    let matching = match text("match") {
        None => None,
        Some(Some(_)) if path.is_none() => return Err((".match", "needs a path")),
        Some(Some(glob)) => Some(glob.to_owned()),
        Some(None) => return Err((".match", "takes a glob")),
    };
    let reason = match text("reason") {
        None => None,
        Some(Some(reason)) => Some(reason.to_owned()),
        Some(None) => return Err((".reason", "takes a text")),
    };
    let origin = match text("origin") {
        None => AuthoredBy::Model,
        Some(word) => word
            .and_then(|word| word.parse().ok())
            .ok_or((".origin", "takes `model`, `author` or `kernel`"))?,
    };
    Ok(Rule {
        tools,
        path,
        matching,
        reason,
        verdict,
        origin,
    })
}

impl Rule {
    fn matches(&self, tool: &str, input: Option<&Value>) -> bool {
        if !self
            .tools
            .iter()
            .any(|g| glob(g.as_bytes(), tool.as_bytes()))
        {
            return false;
        }
        let Some(path) = &self.path else {
            return true;
        };
        let Some(text) = input.and_then(|input| text_at(input, path)) else {
            return false;
        };
        let pattern = self.matching.as_ref();
        pattern.is_none_or(|p| glob(p.as_bytes(), text.as_bytes()))
    }
}

/// What stands at a path: a text, or an array of scalars joined by a space; anything else is none.
fn text_at(input: &Value, path: &[String]) -> Option<String> {
    let mut at = input;
    for part in path {
        at = match at {
            Value::Object(members) => members.get(part)?,
            Value::Array(items) => {
                let plain = part.bytes().all(|b| b.is_ascii_digit());
                items.get(plain.then(|| part.parse::<usize>().ok())??)?
            }
            _ => return None,
        };
    }
    match at {
        Value::Str(text) => Some(text.clone()),
        Value::Array(items) => {
            let scalars = items.iter().map(|item| match item {
                Value::Array(_) | Value::Object(_) => None,
                Value::Str(text) => Some(text.clone()),
                other => other.canonical().ok().map(Canonical::into_string),
            });
            Some(scalars.collect::<Option<Vec<_>>>()?.join(" "))
        }
        _ => None,
    }
}

/// An anchored glob over bytes: `*` any bytes, `?` one. Linear in the text for each star.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// What the stage says of a ready call: rules of the row's origin first, deny before ask before
/// allow; then, for what a model asked, the mode; for what others wrote, a grant in their name.
pub fn judge(
    mode: ApprovalMode,
    rules: Option<&Rules>,
    task: &Task,
    input: Option<&Value>,
) -> Verdict {
    let tool = task.tool_name.as_deref().unwrap_or_default();
    let of_origin = rules.map_or(&[][..], |r| &r.0[..]).iter();
    let of_origin = of_origin.filter(|r| r.origin == task.authored_by);
    let matching: Vec<&Rule> = of_origin.filter(|r| r.matches(tool, input)).collect();
    let first = |word: Word| matching.iter().find(|r| r.verdict == word);
    if let Some(rule) = first(Word::Deny) {
        let reason = rule.reason.as_deref();
        return Verdict::Deny(reason.map(|r| cut(r, DETAIL_BYTES).to_owned()));
    }
    let asked = first(Word::Ask).is_some();
    let allowed = first(Word::Allow).is_some();
    match (task.authored_by, mode) {
        (AuthoredBy::Author, _) if !asked => Verdict::Grant(ApprovalOrigin::Author),
        (AuthoredBy::Kernel, _) if !asked => Verdict::Grant(ApprovalOrigin::Kernel),
        (AuthoredBy::Author | AuthoredBy::Kernel, _) => Verdict::Park,
        (AuthoredBy::Model, ApprovalMode::Bypass) => Verdict::Grant(ApprovalOrigin::Mode),
        (AuthoredBy::Model, _) if asked => Verdict::Park,
        (AuthoredBy::Model, _) if allowed => Verdict::Grant(ApprovalOrigin::Rule),
        (AuthoredBy::Model, ApprovalMode::Ask) => Verdict::Park,
        (AuthoredBy::Model, ApprovalMode::Rules) => {
            Verdict::Deny(Some(format!("no approval rule allows {tool}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::TaskNo;
    use crate::domain::json::parse;
    use crate::domain::words::TaskKind;
    use crate::engine::tables::script::blank;

    fn rules(text: &str) -> Result<Rules, String> {
        let value = parse(text.as_bytes()).unwrap();
        Rules::read(&value)
            .map(|(rules, _)| rules)
            .map_err(|e| e.to_string())
    }

    fn verdict(mode: &str, rules: &Rules, by: AuthoredBy, tool: &str, input: &str) -> String {
        let mut task = blank(TaskNo(1), "t", TaskKind::Tool);
        task.tool_name = Some(tool.to_owned());
        task.authored_by = by;
        let input = parse(input.as_bytes()).unwrap();
        match judge(mode.parse().unwrap(), Some(rules), &task, Some(&input)) {
            Verdict::Grant(origin) => format!("granted {origin}"),
            Verdict::Park => "parks".to_owned(),
            Verdict::Deny(reason) => format!("denied {}", reason.unwrap_or_default()),
        }
    }

    /// `runs.md` §12, the worked example.
    #[test]
    fn the_worked_example() {
        let rules = rules(
            r#"[{"tool":"bash","path":"command","match":"*rm -rf*","verdict":"deny","reason":"no"},
                {"tool":"bash|ls_*","verdict":"allow"}]"#,
        )
        .unwrap();
        for (tool, input, wanted) in [
            ("bash", r#"{"command":"rm -rf x"}"#, "denied no"),
            ("bash", r#"{"command":["rm","-rf","x"]}"#, "denied no"),
            ("bash", r#"{"command":{"x":1}}"#, "granted rule"),
            ("ls_dir", "{}", "granted rule"),
            ("write", "{}", "parks"),
            ("bashx", "{}", "parks"),
        ] {
            let told = verdict("ask", &rules, AuthoredBy::Model, tool, input);
            assert_eq!(told, wanted, "{tool} {input}");
        }
    }

    /// `runs.md` §12, the table of modes: every mode by every kind of match, every origin.
    #[test]
    fn every_mode_by_every_match() {
        let of = |words: &[&str], origin: &str| {
            let list: Vec<String> = words
                .iter()
                .map(|w| {
                    format!(r#"{{"tool":"t","verdict":"{w}","origin":"{origin}","reason":"r"}}"#)
                })
                .collect();
            rules(&format!("[{}]", list.join(","))).unwrap()
        };
        for (mode, words, wanted) in [
            ("bypass", &["deny", "allow"][..], "denied r"),
            ("bypass", &["ask"], "granted mode"),
            ("bypass", &["allow"], "granted mode"),
            ("bypass", &[], "granted mode"),
            ("ask", &["allow", "ask", "deny"], "denied r"),
            ("ask", &["allow", "ask"], "parks"),
            ("ask", &["allow"], "granted rule"),
            ("ask", &[], "parks"),
            ("rules", &["deny"], "denied r"),
            ("rules", &["ask", "allow"], "parks"),
            ("rules", &["allow"], "granted rule"),
            ("rules", &[], "denied no approval rule allows t"),
        ] {
            let told = verdict(mode, &of(words, "model"), AuthoredBy::Model, "t", "{}");
            assert_eq!(told, wanted, "{mode} {words:?}");
        }
        for (by, word) in [
            (AuthoredBy::Author, "author"),
            (AuthoredBy::Kernel, "kernel"),
        ] {
            for mode in ["bypass", "ask", "rules"] {
                for (words, wanted) in [
                    (&["deny", "ask"][..], "denied r".to_owned()),
                    (&["ask", "allow"], "parks".to_owned()),
                    (&["allow"], format!("granted {word}")),
                    (&[], format!("granted {word}")),
                ] {
                    let told = verdict(mode, &of(words, word), by, "t", "{}");
                    assert_eq!(told, wanted, "{by} {mode} {words:?}");
                    // Rules of another origin are not its own.
                    let told = verdict(mode, &of(words, "model"), by, "t", "{}");
                    assert_eq!(told, format!("granted {word}"), "{by} {mode} {words:?}");
                }
            }
        }
    }

    /// `runs.md` §12: paths walk object keys and integer indexes; only `*` and `?` are special.
    #[test]
    fn paths_and_globs() {
        for (path, glob, input, wanted) in [
            ("a.0.b", "x?z", r#"{"a":[{"b":"xyz"}]}"#, true),
            ("a.0.b", "x?z", r#"{"a":[{"b":"xz"}]}"#, false),
            ("a.+0", "*", r#"{"a":["x"]}"#, false),
            ("a.1", "*", r#"{"a":["x"]}"#, false),
            ("a", "*", r#"{"a":7}"#, false),
            ("a", "1 true x null", r#"{"a":[1,true,"x",null]}"#, true),
            ("a", "*", r#"{"a":["x",[1]]}"#, false),
            ("a", "", r#"{"a":""}"#, true),
            ("a", "a\nb*", r#"{"a":"a\nb\nc"}"#, true),
            ("a", "[a]", r#"{"a":"a"}"#, false),
            ("a", "*a*a*b", r#"{"a":"aaaaaaaab"}"#, true),
            ("a", "??", r#"{"a":"é"}"#, true),
        ] {
            let text = Value::from([
                ("tool", "t".into()),
                ("verdict", "deny".into()),
                ("path", path.into()),
                ("match", glob.into()),
            ]);
            let (rules, _) = Rules::read(&Value::Array(vec![text])).unwrap();
            let told = verdict("bypass", &rules, AuthoredBy::Model, "t", input);
            assert_eq!(told.starts_with("denied"), wanted, "{path} {glob} {input}");
        }
    }

    /// `runs.md` §12: a seventh key, a bad word, `match` without `path`.
    #[test]
    fn what_is_no_rule_is_told() {
        for (text, wanted) in [
            ("{}", "run.approval_rules: takes an array of rules"),
            (
                r#"[{"tool":"t","verdict":"allow","x":1}]"#,
                "run.approval_rules[0]: takes tool,",
            ),
            (
                r#"[{"tool":"t","verdict":"maybe"}]"#,
                "run.approval_rules[0].verdict:",
            ),
            (r#"[{"verdict":"deny"}]"#, "run.approval_rules[0].tool:"),
            (
                r#"[{"tool":"t","verdict":"deny","match":"x"}]"#,
                "run.approval_rules[0].match: needs a path",
            ),
            (
                r#"[{"tool":"t","verdict":"deny","path":"a..b"}]"#,
                "run.approval_rules[0].path:",
            ),
            (
                r#"[{"tool":"t","verdict":"deny","reason":7}]"#,
                "run.approval_rules[0].reason:",
            ),
            (
                r#"[{"tool":"t","verdict":"deny","origin":"x"}]"#,
                "run.approval_rules[0].origin:",
            ),
            (r#"[7]"#, "run.approval_rules[0]: takes an object"),
        ] {
            let told = rules(text).unwrap_err();
            assert!(told.starts_with(wanted), "{text}: {told}");
        }
        let long = format!(
            r#"[{{"tool":"{}","verdict":"deny"}}]"#,
            "t".repeat(MAX_RULES)
        );
        assert!(rules(&long).unwrap_err().contains("65,536"));
        assert!(rules("[]").unwrap().is_empty());
    }
}
