//! Writing a recording.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use tokenspeed_scheduler::SchedulerConfig;

use crate::call::{Answer, Call};
use crate::reader::Header;

/// A recording under way. What is still buffered is written when it is dropped.
#[derive(Debug)]
pub struct Recorder(Output);

#[derive(Debug)]
enum Output {
    Plain(BufWriter<File>),
    Gzip(BufWriter<Box<GzEncoder<File>>>),
}

impl Recorder {
    /// A new file, of which the header is written. One that exists is left alone: it may be the
    /// recording of the run that failed.
    pub fn create(path: &Path, config: &SchedulerConfig) -> io::Result<Recorder> {
        let file = File::create_new(path)?;
        let mut recorder = Recorder(match path.extension() {
            Some(suffix) if suffix == "gz" => {
                let gzip = GzEncoder::new(file, Compression::fast());
                Output::Gzip(BufWriter::new(Box::new(gzip)))
            }
            _ => Output::Plain(BufWriter::new(file)),
        });
        recorder.line(&Header::new(config))?;
        recorder.flush()?;
        Ok(recorder)
    }

    /// A call that is about to be carried out.
    pub fn call(&mut self, call: &Call<'_>) -> io::Result<()> {
        self.line(call)?;
        match call {
            Call::NextExecutionPlan => self.flush(),
            _ => Ok(()),
        }
    }

    /// What came of it.
    pub fn answer(&mut self, answer: &Answer) -> io::Result<()> {
        self.line(answer)
    }

    /// Hands everything to the operating system.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }

    /// Ends the file.
    pub fn finish(self) -> io::Result<()> {
        match self.0 {
            Output::Plain(file) => drop(file.into_inner()?),
            Output::Gzip(file) => drop(file.into_inner()?.finish()?),
        }
        Ok(())
    }

    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.writer().write_all(&line)
    }

    fn writer(&mut self) -> &mut dyn Write {
        match &mut self.0 {
            Output::Plain(file) => file,
            Output::Gzip(file) => file,
        }
    }
}
