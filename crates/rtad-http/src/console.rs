//! Console: the files that the pages of both programs share, their media types, and the policy of
//! the pages.

/// Allows resources of this port only, no frames and no form submission.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

/// Media type of style sheets.
pub const CSS: &str = "text/css; charset=utf-8";
/// Media type of pages.
pub const HTML: &str = "text/html; charset=utf-8";
/// Media type of scripts.
pub const JS: &str = "text/javascript; charset=utf-8";
/// Media type of plain text.
pub const TEXT: &str = "text/plain; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Path prefix of the files.
pub const FOLDER: &str = "/console/";

/// A file of a page.
#[derive(Clone, Copy, Debug)]
pub struct ConsoleFile {
    /// Its name behind [`FOLDER`].
    pub name: &'static str,
    /// Its media type.
    pub kind: &'static str,
    /// Its content.
    pub text: &'static str,
}

impl ConsoleFile {
    /// A script.
    #[must_use]
    pub const fn script(name: &'static str, text: &'static str) -> Self {
        Self {
            name,
            kind: JS,
            text,
        }
    }
}

/// The shared files: style, icon, helpers, and the choice of a language.
pub const SHARED: [ConsoleFile; 5] = [
    ConsoleFile {
        name: "console.css",
        kind: CSS,
        text: include_str!("console/console.css"),
    },
    ConsoleFile {
        name: "icon.svg",
        kind: SVG,
        text: include_str!("console/icon.svg"),
    },
    ConsoleFile::script("alerts.js", include_str!("console/alerts.js")),
    ConsoleFile::script("dom.js", include_str!("console/dom.js")),
    ConsoleFile::script("words.js", include_str!("console/words.js")),
];

/// The file of a request's path: a shared one, or one of the page's own.
#[must_use]
pub fn file_at(path: &str, own: &[ConsoleFile]) -> Option<ConsoleFile> {
    let name = path.strip_prefix(FOLDER)?;
    SHARED
        .iter()
        .chain(own)
        .find(|file| file.name == name)
        .copied()
}
