//! Chromium without a screen, driven over a pipe by its DevTools protocol.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// Names under which Chromium is installed.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// Time in which a page must come to what is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// The name under which Chromium is installed.
pub(crate) fn installed() -> Option<&'static str> {
    let is_there = |name: &&str| {
        let asked = Command::new(name).arg("--version").output();
        asked.is_ok_and(|output| output.status.success())
    };
    NAMES.into_iter().find(is_there)
}

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    calls: u64,
    session: Option<String>,
    /// Complaints of the page's scripts, and addresses that it asked for.
    pub(crate) complaints: Vec<String>,
    pub(crate) loaded: Vec<String>,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    /// Starts the browser with a profile in a folder.
    pub(crate) fn start(name: &str, folder: &Path) -> Result<Self> {
        // Chromium reads requests from descriptor 3 and writes answers to 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 1>&2 </dev/null", "sh", name])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", folder.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{name} cannot be run"))?;
        let requests = child.stdin.take().context("no pipe to the browser")?;
        let answers = child.stdout.take().context("no pipe from the browser")?;
        let mut browser = Self {
            child,
            requests,
            answers: BufReader::new(answers),
            calls: 0,
            session: None,
            complaints: Vec::new(),
            loaded: Vec::new(),
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let id = target["targetId"].clone();
        let session = browser.call(
            "Target.attachToTarget",
            json!({"targetId": id, "flatten": true}),
        )?;
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for part in ["Runtime", "Log", "Network", "Page"] {
            browser.call(&format!("{part}.enable"), json!({}))?;
        }
        Ok(browser)
    }

    /// Calls a method and returns its result; keeps what events meanwhile say.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        self.calls += 1;
        let mut request = json!({"id": self.calls, "method": method, "params": params});
        if let Some(session) = &self.session {
            request["sessionId"] = session.as_str().into();
        }
        self.requests.write_all(format!("{request}\0").as_bytes())?;
        loop {
            let mut message = Vec::new();
            self.answers.read_until(0, &mut message)?;
            ensure!(message.pop() == Some(0), "the browser ended in {method}");
            let mut message: Value = serde_json::from_slice(&message)?;
            if message["id"] == self.calls {
                ensure!(message["error"].is_null(), "{method}: {}", message["error"]);
                return Ok(message["result"].take());
            }
            self.heed(&message);
        }
    }

    fn heed(&mut self, event: &Value) {
        let params = &event["params"];
        match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                self.complaints.push(params["exceptionDetails"].to_string())
            }
            Some("Log.entryAdded") => self.complaints.push(params["entry"]["text"].to_string()),
            Some("Runtime.consoleAPICalled") if params["type"] != "log" => {
                self.complaints.push(params["args"].to_string());
            }
            Some("Network.requestWillBeSent") => {
                let address = params["request"]["url"].as_str().unwrap_or_default();
                self.loaded.push(address.to_owned());
            }
            _ => {}
        }
    }

    /// Value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Result<Value> {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.call("Runtime.evaluate", params)?;
        ensure!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        Ok(answer["result"]["value"].take())
    }

    /// Waits until an expression is true.
    pub(crate) fn wait_for(&mut self, expression: &str) -> Result<()> {
        let begin = Instant::now();
        while self.value(expression)? != true {
            if begin.elapsed() > PATIENCE {
                bail!("the page never came to: {expression}");
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Opens a file in a window of this width, light or dark, and waits until its charts are drawn.
    pub(crate) fn open(&mut self, page: &Path, width: u32, scheme: &str) -> Result<()> {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size)?;
        let scheme = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", scheme)?;
        let address = format!("file://{}", page.display());
        self.call("Page.navigate", json!({"url": address}))?;
        self.wait_for("document.body?.dataset.drawn === 'true'")
    }

    /// Center of the first element that a selector finds, brought into view.
    fn center(&mut self, selector: &str) -> Result<[f64; 2]> {
        let find = format!(
            "(() => {{ const found = document.querySelector({selector:?}); \
             found.scrollIntoView({{block: 'center', inline: 'center', behavior: 'instant'}}); \
             const box = found.getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        );
        let place = self.value(&find)?;
        let number = |at: usize| {
            place[at]
                .as_f64()
                .with_context(|| format!("{selector} has no place"))
        };
        Ok([number(0)?, number(1)?])
    }

    fn mouse(&mut self, kind: &str, [x, y]: [f64; 2], more: Value) -> Result<()> {
        let mut params = json!({"type": kind, "x": x, "y": y});
        for (name, value) in more.as_object().into_iter().flatten() {
            params[name] = value.clone();
        }
        self.call("Input.dispatchMouseEvent", params)?;
        Ok(())
    }

    /// Moves the pointer over an element.
    pub(crate) fn hover(&mut self, selector: &str) -> Result<()> {
        let [x, y] = self.center(selector)?;
        self.mouse("mouseMoved", [x - 2.0, y], json!({}))?;
        self.mouse("mouseMoved", [x, y], json!({}))
    }

    /// Clicks on an element.
    pub(crate) fn click(&mut self, selector: &str) -> Result<()> {
        let place = self.center(selector)?;
        let left = json!({"button": "left", "clickCount": 1});
        self.mouse("mousePressed", place, left.clone())?;
        self.mouse("mouseReleased", place, left)
    }

    /// Turns the wheel over an element, with Ctrl.
    pub(crate) fn zoom(&mut self, selector: &str) -> Result<()> {
        let place = self.center(selector)?;
        self.mouse(
            "mouseWheel",
            place,
            json!({"deltaX": 0, "deltaY": -240, "modifiers": 2}),
        )
    }
}
