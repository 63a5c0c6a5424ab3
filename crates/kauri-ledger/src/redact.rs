//! Secrets are taken out of a text before it is written anywhere.

/// What stands in the place of a secret.
const PUT: &str = "[redacted]";

/// Beginnings of tokens that say what they are, and how many characters must follow.
const PREFIXES: &[(&str, usize)] = &[
    ("sk-", 16),
    ("sk_live_", 8),
    ("rk_live_", 8),
    ("ghp_", 16),
    ("gho_", 16),
    ("ghu_", 16),
    ("ghs_", 16),
    ("ghr_", 16),
    ("github_pat_", 16),
    ("glpat-", 16),
    ("xoxb-", 8),
    ("xoxp-", 8),
    ("xoxa-", 8),
    ("npm_", 16),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 30),
    ("ya29.", 16),
    ("eyJ", 32),
];

/// Names whose value is a secret, in any case and with `-` or `_` between words. The value follows `=` or `:`.
const NAMES: &[&str] = &[
    "password",
    "passwd",
    "pwd",
    "secret",
    "token",
    "apikey",
    "api_key",
    "access_key",
    "private_key",
    "client_secret",
    "authorization",
    "cookie",
];

const KEY_BEGIN: &str = "-----BEGIN ";
const KEY_END: &str = "-----END ";

/// Takes secrets out by pattern: tokens known by their beginnings, values of names such as `password`, `Bearer` tokens,
/// passwords in addresses, private keys, and whatever strings it is told of.
///
/// ```
/// use kauri_ledger::Redactor;
///
/// let redactor = Redactor::new().also("hunter2");
/// assert_eq!(redactor.redact("log in as ann, password: s3cret!"), "log in as ann, password: [redacted]");
/// assert_eq!(redactor.redact("say hunter2"), "say [redacted]");
/// assert_eq!(redactor.redact("https://ann:pw@kauri.example/x"), "https://ann:[redacted]@kauri.example/x");
/// assert_eq!(redactor.redact("nothing to hide"), "nothing to hide");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    literals: Vec<String>,
}

impl Redactor {
    /// A redactor that knows the patterns above.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, and this string too wherever it stands.
    #[must_use]
    pub fn also(mut self, secret: impl Into<String>) -> Self {
        self.literals.push(secret.into());
        self.literals.retain(|literal| !literal.is_empty());
        self
    }

    /// The text without its secrets.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for literal in &self.literals {
            text = text.replace(literal.as_str(), PUT);
        }
        let (mut out, mut at) = (String::with_capacity(text.len()), 0);
        while let Some(next) = text[at..].chars().next() {
            let is_start = !text[..at].chars().next_back().is_some_and(is_token);
            match secret_at(&text, at, is_start) {
                Some((keep, len)) => {
                    out.push_str(&text[at..at + keep]);
                    out.push_str(PUT);
                    at += keep + len;
                }
                None => {
                    out.push(next);
                    at += next.len_utf8();
                }
            }
        }
        out
    }
}

/// How many bytes are kept here, and how many after them are a secret.
fn secret_at(text: &str, at: usize, is_start: bool) -> Option<(usize, usize)> {
    let rest = &text[at..];
    if rest.starts_with(KEY_BEGIN) {
        return private_key(rest);
    }
    if rest.starts_with("://") {
        return address_password(rest);
    }
    if !is_start {
        return None;
    }
    prefixed(rest).or_else(|| named(rest)).or_else(|| bearer(rest))
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-.+/=~".contains(c)
}

fn token_len(text: &str) -> usize {
    text.find(|c| !is_token(c)).unwrap_or(text.len())
}

fn prefixed(rest: &str) -> Option<(usize, usize)> {
    let (_, more) = PREFIXES.iter().find(|(prefix, _)| rest.starts_with(prefix))?;
    let len = token_len(rest);
    let prefix = PREFIXES.iter().find(|(prefix, _)| rest.starts_with(prefix))?.0.len();
    (len >= prefix + more).then_some((0, len))
}

fn bearer(rest: &str) -> Option<(usize, usize)> {
    let word = rest.get(..7).filter(|word| word.eq_ignore_ascii_case("bearer "))?;
    let len = token_len(&rest[word.len()..]);
    (len >= 8).then_some((word.len(), len))
}

/// `password=...`, `"api-key": "..."`. A quoted value ends with its quote, another with the next space or comma.
fn named(rest: &str) -> Option<(usize, usize)> {
    let name = &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-').unwrap_or(rest.len())];
    let plain = name.to_ascii_lowercase().replace('-', "_");
    if name.len() > 64 || !NAMES.iter().any(|secret| plain.ends_with(secret)) {
        return None;
    }
    let after_name = rest[name.len()..].trim_start_matches(['"', '\'']).trim_start_matches(' ');
    let after_sign = after_name.strip_prefix([':', '='])?.trim_start_matches(' ');
    let value = after_sign.strip_prefix("Bearer ").or(after_sign.strip_prefix("Basic ")).unwrap_or(after_sign);
    let (value, len) = match value.chars().next()? {
        quote @ ('"' | '\'') => {
            let inside = &value[1..];
            (inside, inside.find(quote).unwrap_or(inside.len()))
        }
        _ => (value, value.find(|c: char| c.is_whitespace() || ",;&\"'})]".contains(c)).unwrap_or(value.len())),
    };
    (len > 0 && !value.starts_with(PUT)).then_some((rest.len() - value.len(), len))
}

/// The password of `scheme://user:password@host`.
fn address_password(rest: &str) -> Option<(usize, usize)> {
    let authority = &rest[3..];
    let authority = &authority[..authority.find(|c: char| "/?# \t\n\"".contains(c)).unwrap_or(authority.len())];
    let (user_and_password, _) = authority.rsplit_once('@')?;
    let (user, password) = user_and_password.split_once(':')?;
    (!password.is_empty() && password != PUT).then_some((3 + user.len() + 1, password.len()))
}

/// From the first line of a key to the end of its last, or of the text.
fn private_key(rest: &str) -> Option<(usize, usize)> {
    let first_line = &rest[..rest.find('\n').or_else(|| rest.find("\\n")).unwrap_or(rest.len())];
    if !first_line.contains("PRIVATE KEY") {
        return None;
    }
    let end = rest.find(KEY_END).map_or(rest.len(), |end| {
        let last = &rest[end + KEY_END.len()..];
        let close = last.find("-----").map_or(last.len(), |close| close + 5);
        end + KEY_END.len() + close
    });
    Some((0, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(Redactor::new().redact(text), expected);
        assert_eq!(Redactor::new().redact(expected), expected, "twice is once");
    }

    #[test]
    fn tokens_are_known_by_their_beginnings() {
        for (prefix, more) in PREFIXES {
            let token = format!("{prefix}{}", "a1".repeat(*more));
            check(&format!("use {token}, then go"), "use [redacted], then go");
            assert_eq!(Redactor::new().redact(&format!("x{token}")), format!("x{token}"), "not inside a word");
        }
        check("ask-me about sk-short and eyJ", "ask-me about sk-short and eyJ");
    }

    #[test]
    fn values_of_secret_names_are_taken_out() {
        check("PASSWORD=a!b c", "PASSWORD=[redacted] c");
        check(r#"{"api-key": "k e y", "n": 1}"#, r#"{"api-key": "[redacted]", "n": 1}"#);
        check("db_password='x'", "db_password='[redacted]'");
        check("Authorization: Basic YWJjZA==", "Authorization: Basic [redacted]");
        check("authorization: Bearer abcdefghijk", "authorization: Bearer [redacted]");
        check("Bearer abcdefghijk", "Bearer [redacted]");
        check("?token=abc&x=1", "?token=[redacted]&x=1");
        check("my secret: ", "my secret: ");
        check("the password is long", "the password is long");
    }

    #[test]
    fn keys_and_passwords_of_addresses_are_taken_out() {
        check("a -----BEGIN EC PRIVATE KEY-----\nabc\n-----END EC PRIVATE KEY----- b", "a [redacted] b");
        check("-----BEGIN PRIVATE KEY-----\nabc", "[redacted]");
        check("-----BEGIN CERTIFICATE-----\nabc", "-----BEGIN CERTIFICATE-----\nabc");
        check("postgres://ann:p@ss@db/x", "postgres://ann:[redacted]@db/x");
        check("https://kauri.example:80/a@b", "https://kauri.example:80/a@b");
    }

    #[test]
    fn any_text_passes() {
        for text in ["", "é", "日本語 password", "://", "-----BEGIN ", "password=", "password:é", "token=\"", "\u{0}"]
        {
            let _ = Redactor::new().also("é").also("").redact(text);
        }
    }
}
