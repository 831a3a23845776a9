//! The programs that `cargo test --workspace` builds, run one by one.
//!
//! `cargo test -p NAME` resolves the features of the packages below `NAME` alone, so it compiles them, and much of
//! what is from outside, a second time. Runs of some tests in another environment take the programs that the whole
//! workspace's tests are.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::shell;

/// Everything that one build made.
pub(crate) struct Programs(Vec<Program>);

#[derive(Debug)]
struct Program {
    /// Directory of its package, in which cargo runs its tests.
    directory: PathBuf,
    /// Name of the target: a test's file, a library or a command.
    name: String,
    is_test: bool,
    path: PathBuf,
}

impl Programs {
    /// Builds the workspace's tests.
    pub(crate) fn build() -> Result<Self> {
        let mut cargo = shell::cargo();
        cargo.args(["test", "--workspace", "--no-run", "--quiet"]);
        cargo.args(["--message-format", "json-render-diagnostics"]);
        println!("+ {}", shell::display(&cargo));
        Ok(Self::parse(&shell::output(&mut cargo)?))
    }

    /// Reads cargo's messages, one JSON object a line.
    fn parse(messages: &str) -> Self {
        let program = |line: &str| {
            let message: Value = serde_json::from_str(line).ok()?;
            let path = |value: &Value| value.as_str().map(PathBuf::from);
            Some(Program {
                path: path(&message["executable"])?,
                directory: path(&message["manifest_path"])?.parent()?.to_path_buf(),
                name: message["target"]["name"].as_str()?.to_owned(),
                is_test: message["profile"]["test"].as_bool()?,
            })
        };
        Self(messages.lines().filter_map(program).collect())
    }

    /// The command `quarry`.
    pub(crate) fn quarry(&self) -> Result<&Path> {
        let mut commands = self.0.iter().filter(|program| !program.is_test);
        let quarry = commands.find(|program| program.name == "quarry");
        Ok(&quarry.context("cargo built no command `quarry`")?.path)
    }

    /// Runs tests of a package: those of the named targets, or of all that it has.
    pub(crate) fn run(
        &self,
        package: &str,
        targets: &[&str],
        environment: &[(&str, &str)],
        arguments: &[&str],
    ) -> Result<()> {
        let programs = self.tests_of(package, targets)?;
        for program in programs {
            let mut command = Command::new(&program.path);
            command.current_dir(&program.directory).args(arguments);
            command.env("CARGO_MANIFEST_DIR", &program.directory);
            command.envs(environment.iter().copied());
            shell::run(&mut command)?;
        }
        Ok(())
    }

    fn tests_of(&self, package: &str, targets: &[&str]) -> Result<Vec<&Program>> {
        let tests = self.0.iter().filter(|program| {
            program.is_test
                && program.directory.ends_with(package)
                && (targets.is_empty() || targets.contains(&program.name.as_str()))
        });
        let tests: Vec<_> = tests.collect();
        ensure!(
            !tests.is_empty() && tests.len() >= targets.len(),
            "{package} lacks one of the tests {targets:?}"
        );
        Ok(tests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: &str = r#"
{"reason":"compiler-artifact","manifest_path":"/r/a/Cargo.toml","target":{"name":"a"},"profile":{"test":true},"executable":"/t/a-1"}
{"reason":"compiler-artifact","manifest_path":"/r/a/Cargo.toml","target":{"name":"storm"},"profile":{"test":true},"executable":"/t/storm-2"}
{"reason":"compiler-artifact","manifest_path":"/r/cli/Cargo.toml","target":{"name":"quarry"},"profile":{"test":true},"executable":"/t/quarry-3"}
{"reason":"compiler-artifact","manifest_path":"/r/cli/Cargo.toml","target":{"name":"quarry"},"profile":{"test":false},"executable":"/t/quarry"}
{"reason":"compiler-artifact","manifest_path":"/r/a/Cargo.toml","target":{"name":"a"},"profile":{"test":false},"executable":null}
{"reason":"build-finished","success":true}"#;

    #[test]
    fn programs_are_found_by_package_and_target() {
        let programs = Programs::parse(MESSAGES);
        let paths = |package, targets: &[&str]| {
            let tests = programs.tests_of(package, targets).unwrap();
            let paths = tests.iter().map(|test| test.path.to_str().unwrap());
            paths.collect::<Vec<_>>()
        };
        assert_eq!(paths("a", &[]), ["/t/a-1", "/t/storm-2"]);
        assert_eq!(paths("a", &["storm"]), ["/t/storm-2"]);
        assert_eq!(programs.quarry().unwrap(), Path::new("/t/quarry"));
    }

    #[test]
    fn a_test_that_was_not_built_is_an_error() {
        let programs = Programs::parse(MESSAGES);
        assert!(programs.tests_of("a", &["storm", "gone"]).is_err());
        assert!(programs.tests_of("b", &[]).is_err());
        assert!(Programs::parse("").quarry().is_err());
    }
}
