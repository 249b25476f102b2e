//! `rtad-loader serve`: the real binary, over real HTTP, on a store in a directory, and on S3 if the `stores` suite has
//! started a server. What was written is read back with the store library, as a pod reads it.

mod process;

mod audiences;
mod devices;
mod faults;
mod refusals;
mod together;
