//! Servers of others, started for a measurement in a folder of their own and ended with it.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::peer::Result;

/// A process that is ended when this is dropped.
pub(crate) struct Process(Child);

impl Process {
    /// Starts it, and waits until it is ready.
    pub(crate) fn start<T>(command: &mut Command, mut ready: impl FnMut() -> Option<T>) -> Result<(Self, T)> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut process = Self(child);
        for _ in 0..200 {
            if let Some(answer) = ready() {
                return Ok((process, answer));
            }
            if let Some(status) = process.0.try_wait()? {
                return Err(format!("it ended at once: {status}").into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err("it did not answer within ten seconds".into())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}

/// A server with a socket of its own, that runs until this is dropped.
pub(crate) struct Server {
    socket: PathBuf,
    _process: Process,
}

impl Server {
    /// Starts it, and waits until it answers on its socket.
    pub(crate) fn start(command: &mut Command, socket: PathBuf) -> Result<Self> {
        let (process, ()) = Process::start(command, || UnixStream::connect(&socket).ok().map(drop))?;
        Ok(Self { socket, _process: process })
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn connect(&self) -> Result<UnixStream> {
        let stream = UnixStream::connect(&self.socket)?;
        // A server that has died must not hold up the others.
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(stream)
    }
}

/// Runs a program, with the libraries that were fetched with it.
pub(crate) fn command(program: &Path, servers: Option<&Path>) -> Command {
    let mut command = Command::new(program);
    let libraries = servers.map(|servers| servers.join("usr/lib")).and_then(|lib| std::fs::read_dir(lib).ok());
    let folders: Vec<PathBuf> = libraries.into_iter().flatten().flatten().map(|folder| folder.path()).collect();
    if let Ok(path) = std::env::join_paths(folders) {
        command.env("LD_LIBRARY_PATH", path);
    }
    command
}

/// Where a program is: among the servers that were fetched, on the path, or where Debian puts PostgreSQL.
pub(crate) fn find(program: &str, servers: Option<&Path>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = |root: &Path| {
        let versions = std::fs::read_dir(root.join("usr/lib/postgresql")).into_iter().flatten().flatten();
        versions.map(|version| version.path().join("bin")).collect::<Vec<_>>()
    };
    let fetched = servers
        .map(|root| [vec![root.join("bin"), root.join("usr/bin"), root.join("usr/sbin")], versions(root)].concat());
    let folders = fetched.into_iter().flatten().chain(std::env::split_paths(&path)).chain(versions(Path::new("/")));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}
