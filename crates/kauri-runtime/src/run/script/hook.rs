//! The six hooks around a script, and which of them it has.

use std::fmt;

/// An optional call around a script.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hook {
    /// Looks at the job before anything is acquired: go on, go on with another job, or skip.
    Prepare,
    /// Before the script.
    BeforeRun,
    /// After a script that succeeded.
    AfterRun,
    /// After a script that failed.
    OnError,
    /// Before the run's end is written down; may still say something.
    BeforeTerminal,
    /// After it; may not.
    Cleanup,
}

impl Hook {
    /// All of them, in the order of a run.
    pub const ALL: [Self; 6] =
        [Self::Prepare, Self::BeforeRun, Self::AfterRun, Self::OnError, Self::BeforeTerminal, Self::Cleanup];

    /// The name under which a script in JavaScript exports it.
    #[must_use]
    pub const fn export_name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::BeforeRun => "beforeRun",
            Self::AfterRun => "afterRun",
            Self::OnError => "onError",
            Self::BeforeTerminal => "beforeTerminal",
            Self::Cleanup => "cleanup",
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prepare => "prepare",
            Self::BeforeRun => "before_run",
            Self::AfterRun => "after_run",
            Self::OnError => "on_error",
            Self::BeforeTerminal => "before_terminal",
            Self::Cleanup => "cleanup",
        })
    }
}

/// The hooks that a script has.
///
/// ```
/// use kauri_runtime::run::script::{Hook, Hooks};
///
/// let hooks = Hooks::NONE.with(Hook::Prepare);
/// assert!(hooks.has(Hook::Prepare) && !hooks.has(Hook::Cleanup));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hooks(u8);

impl Hooks {
    /// None.
    pub const NONE: Self = Self(0);
    /// All six.
    pub const ALL: Self = Self(0b11_1111);

    /// These and this one.
    #[must_use]
    pub const fn with(self, hook: Hook) -> Self {
        Self(self.0 | 1 << hook as u8)
    }

    /// Whether this one is among them.
    #[must_use]
    pub const fn has(self, hook: Hook) -> bool {
        self.0 & 1 << hook as u8 != 0
    }

    /// The hooks among a module's exports: names, each with whether it is a function. A module must export a function as `default`; other names are
    /// its own business.
    ///
    /// # Errors
    /// If there is no such function, or if the name of a hook is something else than a function.
    ///
    /// ```
    /// use kauri_runtime::run::script::{Hook, Hooks};
    ///
    /// let hooks = Hooks::from_exports([("default", true), ("beforeRun", true), ("LIMIT", false)])?;
    /// assert_eq!(hooks, Hooks::NONE.with(Hook::BeforeRun));
    /// let error = Hooks::from_exports([("default", true), ("cleanup", false)]).unwrap_err();
    /// assert_eq!(error.to_string(), "expected the export `cleanup` to be a function, found something else");
    /// # Ok::<(), kauri_runtime::run::script::LoadError>(())
    /// ```
    pub fn from_exports<'a>(exports: impl IntoIterator<Item = (&'a str, bool)>) -> Result<Self, LoadError> {
        let (mut hooks, mut has_script) = (Self::NONE, false);
        for (name, is_function) in exports {
            let hook = Hook::ALL.into_iter().find(|hook| hook.export_name() == name);
            if (hook.is_some() || name == "default") && !is_function {
                let what = format!("expected the export `{name}` to be a function, found something else");
                return Err(LoadError::Invalid(what));
            }
            hooks = hook.map_or(hooks, |hook| hooks.with(hook));
            has_script |= name == "default";
        }
        if has_script {
            return Ok(hooks);
        }
        Err(LoadError::Invalid("expected a function as the export `default`, found none".to_owned()))
    }
}

/// Why a script could not be loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// It is no script: an export is missing or of the wrong sort, or it failed while it was loaded.
    Invalid(String),
    /// It, or its executor, follows a contract that we do not.
    Version {
        /// What we follow.
        expected: String,
        /// What it follows.
        found: String,
    },
    /// Loading it took too long, or the run was cancelled meanwhile.
    Cut(super::Cause),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(what) => f.write_str(what),
            Self::Version { expected, found } => {
                write!(f, "expected version {expected} of the run contract, found {found}")
            }
            Self::Cut(cause) => write!(f, "the script was not loaded: {cause}"),
        }
    }
}

impl std::error::Error for LoadError {}
