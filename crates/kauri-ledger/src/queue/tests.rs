//! Trouble of every kind, at every call.
