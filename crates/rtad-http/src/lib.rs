//! HTTP serving and process plumbing shared by `rtad` and `rtad-loader serve`.

pub mod manual;
