//! Puts the CUDA sources of `kernels/` where maturin takes them into the wheel from
//! (`tool.maturin.include` in `pyproject.toml`), and sets the cfgs of the interpreter that
//! is built for (`Py_GIL_DISABLED`).

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    pyo3_build_config::use_pyo3_cfgs();
    let sources = Path::new("../../kernels");
    println!("cargo::rerun-if-changed={}", sources.display());
    let out_dir = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo sets OUT_DIR"))?;
    let target = Path::new(&out_dir).join("kernels");
    if target.exists() {
        fs::remove_dir_all(&target)?;
    }
    fs::create_dir_all(&target)?;
    for source in fs::read_dir(sources)? {
        let source = source?;
        fs::copy(source.path(), target.join(source.file_name()))?;
    }
    Ok(())
}
