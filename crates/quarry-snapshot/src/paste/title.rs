//! Lines that name what is below them, or whose they are: titles, prompts, commands that run on another machine, logs.

use crate::machine::host;

use super::label::{KINDS, is_address, is_machine, is_name, is_word, told};
use super::when;

/// The machine that a line says the text behind it is of: `Hostname: web1`, `NODENAME: web1`, `On server web1:`,
/// `Starting pod/web1-debug ...`.
pub(super) fn said(line: &str) -> Option<&str> {
    const WORDS_MAX: usize = 12;
    let plain = |c: char| c.is_whitespace() || "*-`\"'=#<>.:,()".contains(c);
    let line = line.trim_matches(plain);
    let words = || -> Vec<&str> { line.split_whitespace().take(WORDS_MAX + 1).collect() };
    let name = if let Some((key, value)) = line.split_once([':', '=']) {
        let value = value.trim_matches(plain);
        Some(value).filter(|value| is_machine(key) && !value.contains(char::is_whitespace))
    } else if let [.., "on" | "On" | "from" | "From" | "of" | "Of", kind, name] = words().as_slice()
        && is_machine(kind)
    {
        Some(*name)
    } else {
        let pod = line
            .strip_prefix("Starting pod/")?
            .split_whitespace()
            .next()?;
        Some(pod.strip_suffix("-debug").unwrap_or(pod))
    };
    name.filter(|name| is_name(name)).and_then(host)
}

/// The machine that a command asked for prints: `hostname`, `uname -n`.
pub(super) fn asks_name(command: &str) -> bool {
    let mut words = command.split(|c: char| c.is_whitespace() || matches!(c, ';' | '&'));
    words.any(|word| matches!(word, "hostname" | "/etc/hostname" | "hostnamectl"))
        || command.contains("uname -n")
}

/// A line that may name what is below it, to be compared with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Title {
    /// Titles of one shape are compared.
    pub(super) shape: String,
    pub(super) text: String,
    /// True if what differs is a machine's name, as of a command that runs there.
    pub(super) is_machine: bool,
    pub(super) is_command: bool,
}

/// The words of a command that prints a table which may name a place: `kubectl debug node/web1 -- cat`, `$ vagrant ssh web1 -c "cat`.
pub(super) fn outer(line: &str, is_command: bool) -> Option<Title> {
    const READERS: [&str; 20] = [
        "cat", "sudo", "head", "tail", "grep", "slabtop", "vmstat", "slabinfo", "dmesg", "less",
        "more", "awk", "sort", "bash", "sh", "chroot", "kmem", "watch", "zcat", "uname",
    ];
    // Behind these words is the name of a machine, or of a container, which may be on the same.
    const VERBS: [&str; 10] = [
        "ssh",
        "debug",
        "shell",
        "node-shell",
        "start-session",
        "console",
        "rsh",
        "mosh",
        "exec",
        "attach",
    ];
    const WORDS_MAX: usize = 40;
    let all: Vec<&str> = line.split_whitespace().take(WORDS_MAX).collect();
    let is_reader = |word: &&str| {
        let word = word.trim_matches(['"', '\'', '`']);
        READERS.contains(&word.rsplit('/').next().unwrap_or_default())
    };
    let reader = all.iter().position(is_reader);
    let is_known =
        line.contains("/proc/") || line.contains("slabtop") || line.contains("vmstat -m");
    (is_command || reader.is_some() && is_known).then_some(())?;
    let outer = &all[..reader.unwrap_or(all.len())];
    let from = outer
        .iter()
        .rposition(|word| word.ends_with(';') || matches!(*word, "&&" | "||" | "|"));
    let outer = &outer[from.map_or(0, |from| from + 1)..];
    let verb = outer.iter().find(|word| VERBS.contains(word));
    if verb.is_none() && reader.is_none() {
        return None;
    }
    let is_path = |word: &&&str| word.starts_with(['/', '~', '.']) && verb.is_none();
    let words = outer
        .iter()
        .filter(|word| !is_path(word) && word.contains(|c: char| c.is_alphabetic()));
    let words: Vec<&str> = words
        .map(|word| word.rsplit_once('@').map_or(*word, |(_, host)| host))
        .collect();
    let text = words.join(" ");
    (!text.is_empty()).then(|| Title {
        shape: format!("{} {}", verb.unwrap_or(&""), words.len()),
        text,
        is_machine: verb.is_some_and(|verb| !["exec", "attach"].contains(verb)),
        is_command: true,
    })
}

/// Begins the shape of a title without a mark.
pub(super) const UNMARKED: &str = "_";

/// True for a line that says that the table below is of another machine: `(other box, same image):`.
pub(super) fn is_of_another(line: &str) -> bool {
    let plain = |word: &str| {
        word.trim_matches(|c: char| !c.is_alphanumeric())
            .to_lowercase()
    };
    let words: Vec<String> = line.split_whitespace().map(plain).collect();
    words.windows(2).any(|pair| {
        ["other", "another", "different", "second"].contains(&pair[0].as_str())
            && (is_machine(&pair[1]) || pair[1] == "box")
    })
}

/// A title above a table that is no machine's by itself: `### alpha`, `h3. host-a`, `alpha (good):`, `web1`; one without
/// a mark, such as `Server A`, is right above it.
pub(super) fn title(line: &str, is_next: bool) -> Option<Title> {
    const WORDS_MAX: usize = 5;
    // Mails quote those who wrote.
    const WROTE: [&str; 6] = ["wrote", "writes", "said", "schrieb", "commented", "posted"];
    let line = line.trim();
    let jira = line.strip_prefix('h').and_then(|line| {
        line[1..]
            .strip_prefix(". ")
            .filter(|_| line.starts_with(|c: char| c.is_ascii_digit()))
    });
    let mark = match line {
        _ if jira.is_some() => "h",
        _ if line.starts_with('#') => "#",
        _ if line.starts_with("==") => "=",
        _ if line.starts_with("**") => "*",
        _ if line.starts_with("--") => "-",
        _ if line.ends_with(':') => ":",
        _ if line.starts_with('[') && line.ends_with(']') => "[",
        _ if line.contains(|c: char| c.is_ascii_digit()) && !line.contains(char::is_whitespace) => {
            ""
        }
        _ if is_next => UNMARKED,
        _ => return None,
    };
    let text = jira
        .unwrap_or(line)
        .trim_matches(|c: char| "=#*-<>:[] ".contains(c));
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_other = |word: &str| {
        KINDS
            .iter()
            .chain(&WROTE)
            .chain(&["slab", "kmalloc", "linux"])
            .any(|kind| word.to_ascii_lowercase().contains(kind))
    };
    let titled = |shape: String, text: String, is_machine: bool| Title {
        shape,
        text,
        is_machine,
        is_command: false,
    };
    // `Box 1`, but neither `Day 1` nor `Test 1`.
    if let [kind, number] = words.as_slice()
        && number.bytes().all(|b| b.is_ascii_digit())
        && is_word(kind)
        && !is_other(kind)
        && told(kind).words.contains(char::is_alphabetic)
        && !when::is_post(kind)
    {
        return Some(titled(
            format!("{mark} {kind}"),
            words.join("-"),
            is_machine(kind),
        ));
    }
    // `here is db1`, `and db2`.
    if let [.., last] = words.as_slice()
        && (mark == UNMARKED || mark == ":" && words.len() > 2)
        && words.len() <= 2 * WORDS_MAX
        && !is_other(text)
        && is_name(last)
        && let stem = last.trim_end_matches(|c: char| c.is_ascii_digit())
        && stem.len() < last.len()
        && !told(last).words.is_empty()
        && stem.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-')
    {
        return Some(titled(format!("~ {stem}"), (*last).to_string(), false));
    }
    let is_title = (1..=WORDS_MAX).contains(&words.len())
        && !is_other(text)
        && words
            .iter()
            .all(|word| is_word(word.trim_matches(['(', ')', ',', '\''])))
        && told(text).times.is_empty()
        && when::of(line).is_none_or(|said| said.time.is_none());
    is_title.then(|| titled(format!("{mark} {}", words.len()), text.to_string(), false))
}

/// The label that a line puts above those behind it, with the lines around it.
pub(super) fn above<'l>(line: &'l str, last: &str, next: &str) -> Option<&'l str> {
    let is_rule = |line: &str| line.len() >= 3 && line.bytes().all(|b| b == b'-');
    let mut words = line.split_whitespace();
    let (first, second) = (words.next()?, words.next());
    // ansible, pssh -i, dshbak and clush -b.
    if line.ends_with(">>") && second == Some("|") && line.contains("rc=") {
        return Some(first).filter(|name| is_name(name));
    }
    if let Some((_, name)) = line
        .split_once("[SUCCESS] ")
        .or_else(|| line.split_once("[FAILURE] "))
        && first.starts_with('[')
    {
        return name.split_whitespace().next().filter(|name| is_name(name));
    }
    // clush counts the machines that have the same.
    let is_count = |word: &str| word.starts_with('(') && word.ends_with(')');
    if is_rule(last) && is_rule(next) && second.is_none_or(is_count) && words.next().is_none() {
        return Some(first);
    }
    // head and tail of several files.
    if let Some(name) = line
        .strip_prefix("==> ")
        .and_then(|line| line.strip_suffix(" <=="))
    {
        return Some(name);
    }
    // salt's and people's own: `web1:`, `== web1 ==`. Other titles are single words, too.
    let title = line.trim_matches(|c: char| "=#*-<>: ".contains(c));
    let said = told(title);
    let is_title = ["slab", "kmalloc", "meminfo", "vmstat", "linux"]
        .iter()
        .any(|word| title.contains(word));
    let is_host = title.contains(|c: char| c.is_ascii_digit())
        && title.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_moment = said.words.is_empty() && !said.times.is_empty();
    (when::is_title(line)
        && is_name(title)
        && !is_title
        && (is_host || is_moment || is_address(title)))
    .then_some(title)
}

/// The machine that a prompt names, or that its command goes to: `root@web1:~# `, `[root@web1 ~]$ `, `web1:~ # `,
/// `me@laptop:~$ ssh web1 `.
pub(super) fn prompt<'l>(line: &'l str, command: &str) -> Option<&'l str> {
    if let Some(host) = ssh(&line[line.len() - command.len()..]) {
        return Some(host);
    }
    let before = line[..line.len() - command.len()].trim_end_matches(['#', '$', '%', '>', ' ']);
    let name = match before.rsplit_once('@') {
        Some((_, behind)) => behind,
        None => {
            let (name, folder) = before.trim_start_matches('[').split_once(':')?;
            folder.starts_with(['~', '/']).then_some(name)?
        }
    };
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '-' | '_'));
    host(&name[..end.unwrap_or(name.len())])
}

/// The machine of `ssh -p 22 root@web1 cat /proc/slabinfo`.
fn ssh(command: &str) -> Option<&str> {
    const WITH_VALUE: &str = "bcDEeFIiJLlmOopQRSWw";
    let mut words = command
        .split_whitespace()
        .skip_while(|word| *word == "sudo");
    (words.next()? == "ssh").then_some(())?;
    while let Some(word) = words.next() {
        match word.strip_prefix('-') {
            Some(option) if option.len() == 1 && WITH_VALUE.contains(option) => _ = words.next(),
            Some(_) => {}
            None => return host(word.rsplit_once('@').map_or(word, |(_, host)| host)),
        }
    }
    None
}

/// The machine that a log names behind its time: `Aug 6 09:37:21 web1 kernel: `, `2026-11-26T13:01:02+0000 web1 cat[1]: `.
pub(super) fn of_log(log: &str) -> Option<&str> {
    let mut words = log.split_whitespace();
    words
        .by_ref()
        .take(3)
        .find(|word| word.split(':').count() >= 3)?;
    let name = words.next()?;
    // The program stands behind it.
    words.next().filter(|program| program.ends_with(':'))?;
    host(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_put_labels_above_lines() {
        for line in [
            "web1 | CHANGED | rc=0 >>",
            "[1] 09:37:21 [SUCCESS] web1",
            "==> web1 <==",
            "== web1 ==",
            "web1:",
            "### web1",
        ] {
            assert_eq!(above(line, "", ""), Some("web1"), "{line}");
        }
        assert_eq!(above("alpha", "----", "----"), Some("alpha"));
        for line in [
            "slabtop:",
            "Output:",
            "## slabinfo",
            "kmalloc-64:",
            "web1",
            "a web1:",
        ] {
            assert_eq!(above(line, "", ""), None, "{line}");
        }
    }

    #[test]
    fn lines_say_machines() {
        for line in [
            "Host: web1",
            "**Hostname:** `web1`",
            "    NODENAME: web1",
            "   Static hostname: web1",
            "InstanceId: web1",
            "On server web1:",
            "Creating debugging pod node-debugger-web1-x with container debugger on node web1.",
            "Starting pod/web1-debug ...",
        ] {
            assert_eq!(said(line), Some("web1"), "{line}");
        }
        for line in [
            "Host: localhost",
            "Node 0, zone DMA",
            "Server: a b",
            "on node",
            "Slab: 1 kB",
            "MACHINE: x86 64",
        ] {
            assert_eq!(said(line), None, "{line}");
        }
        assert!(
            asks_name("hostname -f") && asks_name("uname -n; cat x") && !asks_name("cat hostnames")
        );
    }

    #[test]
    fn commands_and_titles_are_compared() {
        let text = |line: &str| outer(line, true).map(|title| (title.text, title.is_machine));
        for (line, expected) in [
            (
                "kubectl debug node/w1 -it -- cat /proc/slabinfo",
                Some(("kubectl debug node/w1 -it", true)),
            ),
            ("docker exec w1 cat x", Some(("docker exec w1", false))),
            ("vagrant ssh w1", Some(("vagrant ssh w1", true))),
            ("sleep 60; cat x", None),
            ("cat /proc/slabinfo", None),
            ("cd /tmp", None),
        ] {
            assert_eq!(
                text(line),
                expected.map(|(text, is)| (text.to_string(), is)),
                "{line}"
            );
        }
        for (line, expected) in [
            ("h3. host-a", "host-a"),
            ("### host-a", "host-a"),
            ("alpha (good):", "alpha (good)"),
            ("web1", "web1"),
            ("node 1:", "node-1"),
        ] {
            assert_eq!(
                title(line, false).map(|title| title.text).as_deref(),
                Some(expected)
            );
        }
        for line in [
            "joe wrote:",
            "Output:",
            "slabtop:",
            "after:",
            "6.1.40-generic",
            "a word",
        ] {
            assert_eq!(title(line, false), None, "{line}");
        }
    }

    #[test]
    fn prompts_and_logs_name_machines() {
        for line in [
            "root@web1:~# cat x",
            "[root@web1 ~]# cat x",
            "web1:~ # cat x",
            "root@web1:/proc$ cat x",
            "me@laptop:~$ ssh -p 22 root@web1 cat x",
        ] {
            let command = &line[line.find("cat").unwrap()..];
            let command = line.find("ssh").map_or(command, |at| &line[at..]);
            assert_eq!(prompt(line, command), Some("web1"), "{line}");
        }
        assert_eq!(prompt("# cat x", "cat x"), None);
        assert_eq!(prompt("root@3f2a1b4c5d6e:/# cat x", "cat x"), None);
        assert_eq!(of_log("Aug  6 09:37:21 web1 kernel: "), Some("web1"));
        assert_eq!(
            of_log("2026-11-26T13:01:02+0000 web1 cat[1]: "),
            Some("web1")
        );
        assert_eq!(of_log("[  1.2] "), None);
    }
}
