//! NATS JetStream, if its server can be told to sync before it acknowledges. Servers before 2.10 cannot: they sync every two minutes.

use std::path::Path;

use crate::peer::{Queue, Result};
use crate::server::{command, find};

pub(crate) fn start(folder: &Path, servers: Option<&Path>) -> Result<Box<dyn Queue>> {
    let program = find("nats-server", servers).ok_or("no nats-server")?;
    std::fs::create_dir_all(folder)?;
    let config = folder.join("config");
    let store = folder.join("store").display().to_string();
    std::fs::write(&config, format!("jetstream {{ store_dir: {store:?}, sync_interval: always }}\n"))?;
    let checked = command(&program, servers).arg("-t").arg("-c").arg(&config).output()?;
    match checked.status.success() {
        false => Err("this nats-server cannot sync before it acknowledges (that came with 2.10)".into()),
        true => Err("this suite does not speak its protocol yet".into()),
    }
}
