//! The notation of `steps.md` §9, read into JSON.
//!
//! `T(k)`, `M(k)`, `A(k)`, `W(k→t)` are leaf steps; without parentheses they have no key. Inside:
//! `r=[…]` results, `a=[…]` after, `word value` any other option. `!` detaches. `P[…]` is a group,
//! followed by its options as `word value`; `[…]` inside it is a sequence.

use std::iter::Peekable;
use std::str::Chars;

use crate::domain::json::{Object, Value, parse};

/// Reads `[step, …]`.
pub fn steps(text: &str) -> Value {
    let mut reader = Reader(text.chars().peekable());
    let steps = reader.sequence();
    assert_eq!(reader.rest(), "", "after {text}");
    Value::Array(steps)
}

struct Reader<'a>(Peekable<Chars<'a>>);

impl Reader<'_> {
    fn rest(&mut self) -> String {
        self.0.by_ref().collect::<String>().trim().to_owned()
    }

    fn peek(&mut self) -> Option<char> {
        while self.0.next_if(|c| c.is_whitespace()).is_some() {}
        self.0.peek().copied()
    }

    fn next(&mut self) -> char {
        self.peek();
        self.0.next().expect("more text")
    }

    fn eat(&mut self, c: char) -> bool {
        self.peek() == Some(c) && self.0.next().is_some()
    }

    fn word(&mut self) -> String {
        self.peek();
        let mut word = String::new();
        while let Some(c) = self
            .0
            .next_if(|c| !c.is_whitespace() && !",])".contains(*c))
        {
            word.push(c);
        }
        word
    }

    fn sequence(&mut self) -> Vec<Value> {
        assert!(self.eat('['), "a list");
        let mut items = Vec::new();
        while !self.eat(']') {
            items.push(self.item());
            self.eat(',');
        }
        items
    }

    fn item(&mut self) -> Value {
        if self.peek() == Some('[') {
            return Value::Array(self.sequence());
        }
        let detached = self.eat('!');
        let (verb, mut options) = match self.next() {
            'P' => return self.group(),
            'T' => ("tool", vec![("name", "t".into())]),
            'M' => (
                "model",
                vec![
                    ("model", Value::from([("model", "dev/m1".into())])),
                    ("prompt", "p".into()),
                ],
            ),
            'A' => ("ask", vec![("prompt", "p?".into())]),
            'W' => ("wait", vec![]),
            other => panic!("no step begins with {other}"),
        };
        if detached {
            options.push(("detached", true.into()));
        }
        let mut members: Object = options
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        if self.0.next_if_eq(&'(').is_some() {
            while !self.eat(')') {
                self.option(&mut members);
                self.eat(',');
            }
        }
        Value::from([(verb, Value::Object(members))])
    }

    fn option(&mut self, members: &mut Object) {
        let word = self.word();
        for (name, prefix) in [("results", "r=["), ("after", "a=[")] {
            if let Some(first) = word.strip_prefix(prefix) {
                let mut keys = vec![Value::from(first)];
                while !self.eat(']') {
                    self.eat(',');
                    keys.push(self.word().into());
                }
                keys.retain(|key| key.as_str() != Some(""));
                members.insert(name.to_owned(), keys.into());
                return;
            }
        }
        if let Some((key, task)) = word.split_once('→') {
            members.insert("key".into(), key.into());
            members.insert("task".into(), task.into());
        } else if matches!(self.peek(), Some(',' | ')')) {
            members.insert("key".into(), word.into());
        } else {
            members.insert(word, self.value());
        }
    }

    fn group(&mut self) -> Value {
        let mut members = Object::new();
        members.insert("parallel".into(), self.sequence().into());
        while !matches!(self.peek(), None | Some(',' | ']')) {
            let name = self.word();
            let value = self.value();
            members.insert(name, value);
        }
        Value::Object(members)
    }

    fn value(&mut self) -> Value {
        let word = self.word();
        parse(word.as_bytes()).unwrap_or(Value::Str(word))
    }
}
