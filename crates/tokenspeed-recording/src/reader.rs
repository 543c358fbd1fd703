//! Reading a recording.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::GzDecoder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokenspeed_scheduler::{Error, Result, SchedulerConfig};

use crate::FORMAT;
use crate::call::{Answer, Call};

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    #[serde(rename = "tokenspeed_recording")]
    pub format: u32,
    /// The version that has recorded.
    pub version: String,
    /// What the scheduler was built with.
    pub config: SchedulerConfig,
}

impl Header {
    pub(crate) fn new(config: &SchedulerConfig) -> Header {
        let version = env!("CARGO_PKG_VERSION").into();
        Header { format: FORMAT, version, config: config.clone() }
    }
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number, from 1.
    pub number: u64,
    /// The file's line that holds it, from 1.
    pub line: u64,
    /// With its arguments.
    pub call: Call<'static>,
    /// What came of it; `None` where the file ends before.
    pub answer: Option<Answer>,
}

/// A recording, read from its beginning.
pub struct Recording {
    header: Header,
    lines: Lines,
    calls: u64,
}

impl Recording {
    /// Reads the header. Whether a file is compressed shows in its first bytes.
    ///
    /// # Errors
    /// [`Error::BadRecording`]; [`Error::RecordingFailed`] for a file that cannot be opened.
    pub fn open(path: &Path) -> Result<Recording> {
        let mut lines = Lines::open(path)?;
        let format = r#"it must begin with {"tokenspeed_recording": 1, ...}"#;
        let Some(line) = lines.next_line()? else {
            return Err(lines.bad(1, format!("no header; {format}")));
        };
        // The format first: of another one, nothing else is known.
        #[derive(Deserialize)]
        struct Format {
            tokenspeed_recording: u32,
        }
        match serde_json::from_slice(&line) {
            Ok(Format { tokenspeed_recording: FORMAT }) => {}
            Ok(Format { tokenspeed_recording: other }) => {
                return Err(lines.bad(1, format!("format {other}; this version reads {FORMAT}")));
            }
            Err(error) => return Err(lines.bad(1, format!("{error}; {format}"))),
        }
        let header = lines.parse(&line)?;
        Ok(Recording { header, lines, calls: 0 })
    }

    /// The first line.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next call; `None` at the end.
    ///
    /// # Errors
    /// [`Error::BadRecording`].
    pub fn next_entry(&mut self) -> Result<Option<Entry>> {
        let Some(line) = self.lines.next_line()? else {
            return Ok(None);
        };
        let call = self.lines.parse(&line)?;
        let line = self.lines.number;
        let answer = match self.lines.next_line()? {
            Some(line) => Some(self.lines.parse(&line)?),
            None => None,
        };
        self.calls += 1;
        Ok(Some(Entry { number: self.calls, line, call, answer }))
    }

    /// The line in which the file ends too early, if it does: its writer has died.
    pub fn cut_line(&self) -> Option<u64> {
        self.lines.cut
    }

    /// Bytes of the file read so far, and all of them.
    pub fn progress(&self) -> (u64, u64) {
        (self.lines.read.load(Ordering::Relaxed), self.lines.size)
    }
}

/// The complete lines of a file.
struct Lines {
    path: String,
    size: u64,
    read: Arc<AtomicU64>,
    text: Box<dyn BufRead + Send>,
    /// Of the last line given.
    number: u64,
    cut: Option<u64>,
}

impl Lines {
    fn open(path: &Path) -> Result<Lines> {
        let name = path.display().to_string();
        let failed = |error: io::Error| {
            let what = error.to_string();
            Error::RecordingFailed { path: name.clone(), what }
        };
        let file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let read = Arc::new(AtomicU64::new(0));
        let mut bytes = BufReader::new(Counted { file, read: read.clone() });
        let is_gzip = bytes.fill_buf().map_err(failed)?.starts_with(&[0x1f, 0x8b]);
        let text: Box<dyn BufRead + Send> = match is_gzip {
            true => Box::new(BufReader::new(GzDecoder::new(bytes))),
            false => Box::new(bytes),
        };
        Ok(Lines { path: name, size, read, text, number: 0, cut: None })
    }

    /// The next line, without its end; `None` at the end of the file, also where that cuts a line.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let read = match self.text.read_until(b'\n', &mut line) {
            Ok(read) => Ok(read > 0),
            // A compressed file that was not ended.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(true),
            Err(error) => Err(self.bad(self.number + 1, error)),
        };
        if line.pop() == Some(b'\n') {
            self.number += 1;
            return Ok(Some(line));
        }
        if read? {
            self.cut = Some(self.number + 1);
        }
        Ok(None)
    }

    fn parse<T: DeserializeOwned>(&self, line: &[u8]) -> Result<T> {
        serde_json::from_slice(line).map_err(|error| self.bad(self.number, error))
    }

    fn bad(&self, line: u64, what: impl ToString) -> Error {
        // serde_json counts lines too, and each text that it sees is one.
        let what = what.to_string().replace(" at line 1 column ", " at column ");
        Error::BadRecording { path: self.path.clone(), line, what }
    }
}

/// A file that counts what is read of it.
struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
