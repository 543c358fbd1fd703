//! Text for `repr`: constructor calls, long lists cut short.

use std::fmt::{Debug, Display, Write};

/// Entries of a list that are shown.
const SHOWN: usize = 8;

/// `Name(field=value, ...)` in the making.
pub struct Repr {
    text: String,
    fields: usize,
}

impl Repr {
    /// Of the class with that name.
    pub fn of(class: &str) -> Repr {
        Repr { text: format!("{class}("), fields: 0 }
    }

    /// One field, as `value` prints itself.
    pub fn field(mut self, name: &str, value: impl Display) -> Repr {
        let comma = if self.fields == 0 { "" } else { ", " };
        self.fields += 1;
        write!(self.text, "{comma}{name}={value}").expect("a string takes everything");
        self
    }

    /// A string field, quoted.
    pub fn text(self, name: &str, value: &str) -> Repr {
        self.field(name, quoted(value))
    }

    /// A list field, cut short.
    pub fn list<T: Debug>(self, name: &str, values: &[T]) -> Repr {
        self.field(name, list(values))
    }

    /// A truth.
    pub fn truth(self, name: &str, value: bool) -> Repr {
        self.field(name, if value { "True" } else { "False" })
    }

    /// The whole.
    pub fn finish(mut self) -> String {
        self.text.push(')');
        self.text
    }
}

/// As Python would write a plain string.
pub fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n"))
}

/// `[1, 2, 3]`, or the first few and how many there are.
pub fn list<T: Debug>(values: &[T]) -> String {
    shown(values, |value| format!("{value:?}"))
}

/// As `list`, of strings.
pub fn texts<T: AsRef<str>>(values: &[T]) -> String {
    shown(values, |value| quoted(value.as_ref()))
}

fn shown<T>(values: &[T], write: impl Fn(&T) -> String) -> String {
    let shown: Vec<String> = values.iter().take(SHOWN).map(write).collect();
    match values.len() {
        len if len > SHOWN => format!("[{}, ... {len} in all]", shown.join(", ")),
        _ => format!("[{}]", shown.join(", ")),
    }
}
