//! Mistakes in field paths, strategies and signatures.

use super::{MAPPING, read};

#[test]
fn path_mistakes_name_the_accepted_fields() {
    let device = "imei, imei_md5, oaid";
    let request = "id, asked, device, dids, score, extra, ping, old";
    for (line, instead, expected) in [
        (
            "device.imei\"",
            "device.imie\"",
            format!(
                "16: platform[0].request.ids.imei is \"device.imie\": Device has no field \
                \"imie\"; accepted: {device}"
            ),
        ),
        (
            "device.imei\"",
            "device\"",
            format!(
                "16: platform[0].request.ids.imei is \"device\": Req.device is a message; \
                accepted: one of its fields: {device}"
            ),
        ),
        (
            "device.imei\"",
            "id.imei\"",
            "16: platform[0].request.ids.imei is \"id.imei\": Req.id is not a message and has no \
                fields; accepted: a field that is a message"
                .to_owned(),
        ),
        (
            "device.imei\"",
            "device..imei\"",
            "16: platform[0].request.ids.imei is \"device..imei\": is not a path; accepted: at \
                most 16 names separated by dots, such as device.imei"
                .to_owned(),
        ),
        (
            "device.imei\"",
            "score\"",
            format!(
                "16: platform[0].request.ids.imei is \"score\": Req.score is a float; \
                accepted: {request}"
            ),
        ),
        (
            "device.imei\"",
            "extra.value\"",
            format!(
                "16: platform[0].request.ids.imei is \"extra.value\": Req.extra is a map; \
                accepted: {request}"
            ),
        ),
        (
            "device.imei\"",
            "old.x\"",
            format!(
                "16: platform[0].request.ids.imei is \"old.x\": Req.old is a group; accepted: \
                {request}"
            ),
        ),
        (
            "request_id = \"id\"",
            "request_id = \"asked\"",
            "12: platform[0].request.request_id is \"asked\": Req.asked is repeated; accepted: a \
                field that is not repeated"
                .to_owned(),
        ),
        (
            "ping = \"ping\"",
            "ping = \"id\"",
            "15: platform[0].request.ping is \"id\": Req.id is not a number; accepted: an \
                integer, an enum or a bool"
                .to_owned(),
        ),
        (
            "value = \"value\"",
            "value = \"more\"",
            "19: platform[0].request.id_list.value is \"dids.more\": Did.more is repeated; \
                accepted: a field that is not repeated"
                .to_owned(),
        ),
        (
            "list = \"dids\"",
            "list = \"id\"",
            "18: platform[0].request.id_list.list is \"id\": Req.id is not a message and has no \
                fields; accepted: a field that is a message"
                .to_owned(),
        ),
        (
            "{ \"IMEI\"",
            "{ \"IMIE\"",
            "21: platform[0].request.id_list.kinds is \"IMIE\": \"IMIE\" is not a value of the \
                field; accepted: IMEI, OAID"
                .to_owned(),
        ),
        (
            "{ \"IMEI\"",
            "{ \"IMEI/md5\"",
            "21: platform[0].request.id_list.kinds is \"IMEI/md5\": secure is not set; accepted: \
                a value of type alone"
                .to_owned(),
        ),
        (
            "imei = \"device.imei\"",
            "imie = \"device.imei\"",
            "16: platform[0].request.ids.imie is not known; accepted: one of md5, idfa, imei, \
             oaid, android_id, mac, caid, gaid, openid, idfa_md5, imei_md5, oaid_md5, \
             android_id_md5, mac_md5, caid_md5, gaid_md5, openid_md5"
                .to_owned(),
        ),
        (
            "field = \"code\"",
            "field = \"hits\"",
            "23: platform[0].response.code.field is \"hits\": Rsp.hits is repeated; accepted: a \
                field that is not repeated"
                .to_owned(),
        ),
        (
            "field = \"code\"",
            "field = \"joined\"",
            "23: platform[0].response.code.field is \"joined\": Rsp.joined is not a number; \
                accepted: an integer, an enum or a bool"
                .to_owned(),
        ),
        (
            "bid = 0",
            "bid = 4294967296",
            "23: platform[0].response.code.field is \"code\": it does not hold 4294967296; \
                accepted: numbers that its type holds"
                .to_owned(),
        ),
        (
            "list = \"verdicts\"",
            "list = \"one\"",
            "24: platform[0].response.verdicts.list is \"one\": it is not repeated; accepted: a \
                list of messages"
                .to_owned(),
        ),
        (
            "accepted = \"ok\"",
            "accepted = \"kk\"",
            "24: platform[0].response.verdicts.accepted is \"kk\": Verdict has no field \"kk\"; \
                accepted: id, ok"
                .to_owned(),
        ),
        (
            "accepted = \"hits\"",
            "accepted = \"joined\"",
            "25: platform[0].response.accepted is \"joined\": it is not repeated; \
             accepted: a list, or a string and accepted_separator"
                .to_owned(),
        ),
        (
            "accepted = \"hits\"",
            "accepted_separator = \",\"\naccepted = \"hits\"",
            "26: platform[0].response.accepted is \"hits\": it is not a single string; \
             accepted: a string for accepted_separator"
                .to_owned(),
        ),
        (
            "accepted = \"hits\"",
            "accepted_separator = \"1\"\naccepted = \"joined\"",
            "26: platform[0].response.accepted is \"joined\": a strategy id of this platform \
                contains accepted_separator; \
             accepted: a separator that no id contains"
                .to_owned(),
        ),
        (
            "cache = \"seconds\"",
            "cache = \"one.id\"\nrequest_id = \"one.id\"",
            "26: platform[0].response.cache is \"one.id\": it is mapped twice; accepted: a field \
                of its own for each"
                .to_owned(),
        ),
        (
            "{ \"1\" = \"new-users\" }",
            "{ \"one\" = \"new-users\" }",
            "24: platform[0].response.verdicts.strategy is \"id\": it cannot hold strategy \
                \"one\"; accepted: strategy ids from -9223372036854775808 to 9223372036854775807, \
                    without a plus or leading zeros"
                .to_owned(),
        ),
        (
            "{ \"1\" = \"new-users\" }",
            "{ \"1,2\" = \"new-users\" }",
            "13: platform[0].request.strategies is \"asked\": a strategy id of this platform \
                contains strategies_separator; \
                 accepted: a separator that no id contains"
                .to_owned(),
        ),
        (
            "{id}-{header:x-a}",
            "{ids}-{header:x a}{asked}",
            "30: platform[0].signature.template is \"ids\": Req has no field \"ids\"; accepted: \
                id, asked, device, dids, score, extra, ping, old"
                .to_owned(),
        ),
        (
            "{id}-{header:x-a}",
            "{asked}{secret}",
            "30: platform[0].signature.template is \"asked\": Req.asked is repeated; accepted: a \
                field that is not repeated"
                .to_owned(),
        ),
        (
            "{id}-{header:x-a}",
            "{header:x a}",
            "30: platform[0].signature.template is \"header:x a\": is not a header name; \
                accepted: a field's path, body:PATH, header:NAME or query:NAME"
                .to_owned(),
        ),
        (
            "{id}-{header:x-a}",
            "{id",
            "30: platform[0].signature.template has a { without a }; accepted: {name}, and {{ or \
                }} for a brace"
                .to_owned(),
        ),
        (
            "hmac-sha256",
            "sha256",
            "30: platform[0].signature.template has no {secret}: any sender could sign; accepted: \
                a template with {secret}, or algorithm = \"hmac-sha256\""
                .to_owned(),
        ),
    ] {
        assert!(MAPPING.contains(line), "{line}");
        let mistakes = read(&MAPPING.replacen(line, instead, 1)).unwrap_err().mistakes;
        let mistakes: Vec<&str> = mistakes.iter().map(|mistake| mistake.trim()).collect();
        assert!(mistakes.contains(&expected.as_str()), "{instead}\n{expected}\n{mistakes:#?}");
    }
}

#[test]
fn strategy_id_that_does_not_fit_names_the_field() {
    let ids = ["+7", "-0", "-1", "0", "0501"].map(|id| format!("\"{id}\" = \"new-users\""));
    let ids = &format!("{{ {} }}", ids.join(", "));
    let mistakes =
        read(&MAPPING.replacen("{ \"1\" = \"new-users\" }", ids, 1)).unwrap_err().mistakes;
    let mistakes: Vec<&str> = mistakes.iter().map(|mistake| mistake.trim()).collect();
    let expected = "24: platform[0].response.verdicts.strategy is \"id\": it cannot hold strategy \
                    \"+7\", \"-0\", \"0501\"; \
                    accepted: strategy ids from -9223372036854775808 to 9223372036854775807, \
                    without a plus or leading zeros";
    assert_eq!(mistakes, [expected]);
}

#[test]
fn unverifiable_signature_is_a_mistake() {
    let accepted = "accepted: a source that the template does not sign";
    let sources = "accepted: a field's path, body:PATH, header:NAME or query:NAME";
    for (source, template, expected) in [
        (
            "body:id",
            "{body}",
            format!(
                "32: platform[0].signature.in is \"body:id\": the template has {{body}}, which \
                    contains it; {accepted}"
            ),
        ),
        (
            "body:id",
            "{id}",
            format!(
                "32: platform[0].signature.in is \"body:id\": the template contains it; {accepted}"
            ),
        ),
        (
            "header:X-A",
            "{id}{header:x-a}",
            format!(
                "32: platform[0].signature.in is \"header:X-A\": the template contains it; \
                    {accepted}"
            ),
        ),
        (
            "query:sign",
            "{id}{query:sign}",
            format!(
                "32: platform[0].signature.in is \"query:sign\": the template contains it; \
                    {accepted}"
            ),
        ),
        (
            "query:",
            "{id}",
            format!(
                "32: platform[0].signature.in is \"query:\": is not a parameter name; {sources}"
            ),
        ),
        (
            "header:",
            "{id}",
            format!("32: platform[0].signature.in is \"header:\": is not a header name; {sources}"),
        ),
        (
            "query:sign",
            "{query:}",
            format!(
                "30: platform[0].signature.template is \"query:\": is not a parameter name; \
                    {sources}"
            ),
        ),
        (
            "query:sign",
            "{header:}",
            format!(
                "30: platform[0].signature.template is \"header:\": is not a header name; {sources}"
            ),
        ),
    ] {
        let text = MAPPING.replacen("in = \"query:sign\"", &format!("in = \"{source}\""), 1);
        let text = text.replacen("{id}-{header:x-a}", template, 1);
        let mistakes = read(&text).unwrap_err().mistakes;
        let mistakes: Vec<&str> = mistakes.iter().map(|mistake| mistake.trim()).collect();
        assert_eq!(mistakes, [expected]);
    }
}

#[test]
fn secret_in_a_template_is_in_no_mistake() {
    for template in
        ["{id}pasted-secret{", "pasted-secret}", "pasted-secret{ids}", "{query:}pasted-secret"]
    {
        let text = MAPPING.replacen("{id}-{header:x-a}", template, 1);
        let mistakes = read(&text).unwrap_err().to_string();
        assert!(!mistakes.contains("pasted"), "{mistakes}");
    }
    let text = MAPPING.replacen("{id}-{header:x-a}", "{id}pasted-secret", 1).replacen(
        "hmac-sha256",
        "md5",
        1,
    );
    let mistakes = read(&text).unwrap_err().to_string();
    assert!(mistakes.contains("has no {secret}") && !mistakes.contains("pasted"), "{mistakes}");
}

#[test]
fn strategy_id_must_fit_packed_lists_and_requested_numbers() {
    let proto = "syntax = \"proto3\"; message Q { repeated uint32 asked = 1; string i = 2; } \
        message R { repeated int32 hits = 1; }";
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join("n.proto"), proto).unwrap();
    let text = r#"
[[platform]]
kind = "custom"
name = "p"
path = "/p"
strategies = { "5000000000" = "new-users", "-1" = "new-users" }
body = "protobuf"
proto = "n.proto"
request_message = "Q"
response_message = "R"
request = { strategies = "asked", ids = { imei = "i" } }
response = { accepted = "hits" }
"#;
    let file = folder.path().join("rtad.toml");
    let flags = vec![("store.url", "/data".to_owned())];
    let found =
        crate::serve::Assembly::read(Some((file.to_str().unwrap(), text)), |_| None, &flags);
    let found = found.unwrap_err().to_string();
    for expected in [
        "response.accepted is \"hits\": it cannot hold strategy \"5000000000\"; accepted: \
            strategy ids from -2147483648 to 2147483647, ",
        "request.strategies is \"asked\": it cannot hold strategy ",
        "accepted: strategy ids from 0 to 4294967295, ",
    ] {
        assert!(found.contains(expected), "{expected}\n{found}");
    }
}
