//! Pipes of a command that are let go of when nobody hears it any more, whoever else holds them open.
//!
//! ```text
//! a thread waits for    its pipe ──────> it is read or written
//!                       the leash's end ──> hung up when the leash is dropped: the pipe has ended
//! ```
//!
//! A daemon that a command leaves behind may hold its pipes open in silence for ever, and a thread that only read or wrote would stay as long.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionbio};

/// What holds pipes. When it is dropped, they have ended for whoever reads or writes them.
pub(super) struct Leash {
    _hold: PipeWriter,
    end: Arc<PipeReader>,
}

/// A pipe that is held.
pub(super) struct Leashed<P> {
    pipe: P,
    end: Arc<PipeReader>,
}

impl Leash {
    pub(super) fn new() -> io::Result<Self> {
        let (end, hold) = io::pipe()?;
        Ok(Self { _hold: hold, end: Arc::new(end) })
    }

    /// A pipe that is read.
    pub(super) fn on<P: Read + AsFd>(&self, pipe: P) -> Leashed<P> {
        Leashed { pipe, end: Arc::clone(&self.end) }
    }

    /// A pipe that is written. A pipe that has room for some bytes waits with the rest if it may: so it may not.
    pub(super) fn on_input<P: Write + AsFd>(&self, pipe: P) -> io::Result<Leashed<P>> {
        ioctl_fionbio(&pipe, true)?;
        Ok(Leashed { pipe, end: Arc::clone(&self.end) })
    }
}

impl<P: AsFd> Leashed<P> {
    /// Waits until the pipe is ready for this; answers whether anybody still wants it.
    fn wait_for(&self, what: PollFlags) -> io::Result<bool> {
        let mut both = [PollFd::new(&self.pipe, what), PollFd::new(&*self.end, PollFlags::IN)];
        loop {
            match poll(&mut both, None) {
                Ok(_) => return Ok(both[1].revents().is_empty()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl<P: Read + AsFd> Read for Leashed<P> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.wait_for(PollFlags::IN)? { self.pipe.read(buffer) } else { Ok(0) }
    }
}

impl<P: Write + AsFd> Write for Leashed<P> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        while self.wait_for(PollFlags::OUT)? {
            match self.pipe.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return written,
            }
        }
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pipe.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipe_is_read_and_written_until_the_leash_is_dropped() {
        let leash = Leash::new().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        let (mut reader, mut writer) = (leash.on(reader), leash.on_input(writer).unwrap());
        writer.write_all(b"pears").unwrap();
        let mut five = [0; 5];
        reader.read_exact(&mut five).unwrap();
        assert_eq!(&five, b"pears");
        drop(leash);
        // Both ends are open: without a leash, these would wait for ever.
        assert_eq!(reader.read(&mut five).unwrap(), 0);
        assert_eq!(writer.write(b"more").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "somebody has to wait meanwhile")]
    fn whoever_waits_for_a_full_pipe_is_let_go_of() {
        let leash = Leash::new().unwrap();
        let (_unread, writer) = io::pipe().unwrap();
        let mut writer = leash.on_input(writer).unwrap();
        let writing = std::thread::spawn(move || writer.write_all(&vec![7; 8 << 20]));
        drop(leash);
        assert_eq!(writing.join().unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
