//! Build script: compiles `proto/` without protoc.
//!
//! Four changes apply to the decoders, not to the files that clients generate code from:
//!
//! - strings become `Bytes`: slices of the body, not copied, and valid even if not UTF-8;
//! - fields that rtad does not read are removed: they are skipped, so they cost no allocation and
//!   fail no request;
//! - messages with strings have no `Debug`, as they may hold device ids: nothing can print them.
//!   Answers hold none.
//!
//! The changed descriptors are written to `proto.bin`, by which answers are shown as text.

use std::path::PathBuf;

use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    use prost_types::field_descriptor_proto::Type;

    println!("cargo::rerun-if-changed=proto");
    let mut files = protox::compile(["tencent.proto", "ocean.proto"], ["proto"])?;
    let mut hidden = Vec::new();

    for file in &mut files.file {
        let package = file.package().to_owned();
        if package.starts_with("google.") {
            continue;
        }

        let mut messages = Vec::new();
        for message in &mut file.message_type {
            messages.push((package.clone(), message));
        }
        while let Some((parent, message)) = messages.pop() {
            let name = format!("{parent}.{}", message.name());
            message
                .field
                .retain(|field| !UNREAD.contains(&format!("{name}.{}", field.name()).as_str()));

            let mut has_string = false;
            for field in &mut message.field {
                if field.r#type() == Type::String {
                    field.set_type(Type::Bytes);
                    has_string = true;
                }
            }
            if has_string && !ANSWERS.iter().any(|answer| name.starts_with(answer)) {
                hidden.push(format!(".{name}"));
            }

            for nested in &mut message.nested_type {
                messages.push((name.clone(), nested));
            }
        }
    }

    let out_folder = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    std::fs::write(out_folder.join("proto.bin"), files.encode_to_vec())?;

    prost_build::Config::new()
        .bytes(["."])
        .skip_debug(hidden)
        .compile_fds(files)?;
    Ok(())
}

/// Answers: all other messages with strings have no `Debug`.
const ANSWERS: &[&str] = &["tencent.ad.rta.RtaResponse", "ocean.rta.Rsp"];

/// Fields that rtad does not read.
const UNREAD: &[&str] = &[
    "tencent.ad.rta.RtaRequest.exps",
    "tencent.ad.rta.RtaRequest.unified_request_id",
    "tencent.ad.rta.RtaRequest.crt_template_id",
    "tencent.ad.rta.RtaRequest.rta_trace_id_list",
    "tencent.ad.rta.RtaRequest.ad_request_time",
    "tencent.ad.rta.RtaRequest.AdInfo.creative_infos",
    "tencent.ad.rta.RtaRequest.AdInfo.product_infos",
    "tencent.ad.rta.RtaRequest.AdInfo.advertiser_id",
    "tencent.ad.rta.Device.ip",
    "tencent.ad.rta.Device.QaidInfo.version",
    "tencent.ad.rta.Device.QaidInfo.origin_version",
    "tencent.ad.rta.Device.WxOpenid.appid",
    "ocean.rta.Req.experiment",
    "ocean.rta.Req.source",
    "ocean.rta.Req.enable_strategy",
    "ocean.rta.Req.vids",
    "ocean.rta.Device.global_did",
    "ocean.rta.Device.ip",
    "ocean.rta.Device.ua",
    "ocean.rta.Device.idfv",
    "ocean.rta.Device.caid1_version",
    "ocean.rta.Device.caid2_version",
];
