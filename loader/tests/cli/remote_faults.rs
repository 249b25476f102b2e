//! Stores that cannot be reached, and servers whose answers are none of a store's.

use testkit::port::free_port;
use testkit::process::{Outcome, outcome, spawn};
use testkit::sandbox::{Sandbox, command};
use testkit::server::{Fault, FileServer};

/// An unreachable store fails within seconds, and no message contains a credential.
#[test]
fn unreachable_store_is_reported_without_secrets() {
    let sandbox = Sandbox::new();
    // Nobody listens: connections are refused.
    let port = free_port();
    let endpoint = format!("http://127.0.0.1:{port}");
    let endpoint = endpoint.as_str();
    let azure = [
        ("AZURE_STORAGE_ACCOUNT_NAME", "name"),
        ("AZURE_STORAGE_ENDPOINT", endpoint),
        ("AZURE_ALLOW_HTTP", "true"),
    ];
    for (store, environment) in [
        (
            "s3://bucket/rtad",
            vec![
                ("AWS_ACCESS_KEY_ID", "key-id"),
                ("AWS_SECRET_ACCESS_KEY", "hush-hush"),
                ("AWS_ENDPOINT_URL", endpoint),
                ("AWS_ALLOW_HTTP", "true"),
            ],
        ),
        (
            "az://container/rtad",
            [&azure[..], &[("AZURE_STORAGE_ACCOUNT_KEY", "aHVzaC1odXNo")]].concat(),
        ),
        (
            "az://container/rtad",
            [
                &azure[..],
                &[("AZURE_STORAGE_SAS_TOKEN", "sv=2025-11-05&sig=hush-hush")],
            ]
            .concat(),
        ),
        (
            "gs://bucket/rtad",
            vec![
                ("GOOGLE_BASE_URL", endpoint),
                ("GOOGLE_BEARER_TOKEN", "hush-hush"),
            ],
        ),
    ] {
        let outcome = with_credentials(
            &sandbox,
            &format!("inspect --store {store} --audience a"),
            &environment,
        );
        outcome
            .fails(5, "could not read a/LATEST")
            .fails(5, "Connection refused");
        assert!(
            !["hush", "aHVzaC1odXNo", "key-id"]
                .iter()
                .any(|secret| outcome.stderr.contains(secret)),
            "{outcome:?}"
        );
    }
    sandbox.run("list --store https://me:hush@host/x").fails(
        2,
        "store \"https://…@host/x\": credentials come from the environment, not from the URL",
    );
}

#[test]
fn plain_http_endpoint_needs_permission() {
    let sandbox = Sandbox::new();
    let environment = [
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
        ("AWS_ACCESS_KEY_ID", "id"),
    ];
    let refused = with_credentials(
        &sandbox,
        "inspect --store s3://bucket --audience a",
        &environment,
    );
    for words in [
        "s3://bucket",
        "AWS_ENDPOINT_URL is plain HTTP",
        "AWS_ALLOW_HTTP=true",
    ] {
        refused.fails(5, words);
    }
    let of_s3 = [
        ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1"),
        ("AWS_ALLOW_HTTP", "no"),
    ];
    let refused = with_credentials(&sandbox, "inspect --store s3://bucket --audience a", &of_s3);
    refused.fails(5, "is plain HTTP");
    for word in ["true", "TRUE", "1", "yes"] {
        let environment = [
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
            ("AWS_ALLOW_HTTP", word),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
        ];
        let tried = with_credentials(
            &sandbox,
            "inspect --store s3://bucket --audience a",
            &environment,
        );
        tried.fails(5, "Connection refused");
    }
}

/// Nothing is sent before the credentials are complete, and no message quotes a key.
#[test]
fn missing_or_damaged_credentials_are_reported() {
    let sandbox = Sandbox::new();
    let path = |name: &str, content: &str| sandbox.file(name, content).display().to_string();
    let nothing = sandbox.path().join("nothing.json").display().to_string();
    let incomplete = path("incomplete.json", r#"{"private_key": "hush-hush"}"#);
    let damaged = path(
        "damaged.json",
        r#"{"private_key": "hush-hush", "private_key_id": "1", "client_email": "me@host"}"#,
    );
    for (store, variable, value, reason) in [
        (
            "s3://bucket",
            "AWS_SESSION_TOKEN",
            "hush\n",
            "AWS_SESSION_TOKEN: expected no control",
        ),
        (
            "az://container/rtad",
            "AZURE_STORAGE_ACCOUNT_KEY",
            "",
            "Account must be specified",
        ),
        (
            "gs://bucket/rtad",
            "GOOGLE_SERVICE_ACCOUNT",
            &nothing,
            "nothing.json: No such file",
        ),
        (
            "gs://bucket/rtad",
            "GOOGLE_SERVICE_ACCOUNT",
            &incomplete,
            "missing field `",
        ),
        (
            "gs://bucket/rtad",
            "GOOGLE_SERVICE_ACCOUNT",
            &damaged,
            "pem file: no items found",
        ),
        (
            "gs://bucket/rtad",
            "GOOGLE_APPLICATION_CREDENTIALS",
            &damaged,
            "missing field `type`",
        ),
    ] {
        let words = format!("inspect --store {store} --audience a");
        let outcome = with_credentials(&sandbox, &words, &[(variable, value)]);
        outcome
            .fails(5, &format!("store \"{store}\" cannot be opened: "))
            .fails(5, reason);
        assert!(!outcome.stderr.contains("hush"), "{outcome:?}");
    }
}

#[test]
fn answer_that_is_no_list_is_refused() {
    const LOGIN: &str = "<!DOCTYPE html><html><body>Log in</body></html>";
    const CUT: &str = "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>";
    let sandbox = Sandbox::new();
    let server = FileServer::serve(sandbox.path());
    let (endpoint, azure) = (server.url(), format!("{}/name", server.url()));
    let s3 = [("AWS_ENDPOINT_URL", &*endpoint), ("AWS_ALLOW_HTTP", "true")];
    let s3 = [
        &s3[..],
        &[
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
        ],
    ];
    let google = [
        ("GOOGLE_BASE_URL", &*endpoint),
        ("GOOGLE_BEARER_TOKEN", "token"),
    ];
    let azure = [
        ("AZURE_STORAGE_ACCOUNT_NAME", "name"),
        ("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0"),
        ("AZURE_STORAGE_ENDPOINT", &*azure),
        ("AZURE_ALLOW_HTTP", "true"),
    ];
    let page = "could not list the store: ";
    for (store, environment) in [
        ("s3://b", &s3.concat()[..]),
        ("gs://b", &google),
        ("az://b", &azure),
    ] {
        server.misbehave(Fault::Body(LOGIN), "");
        let listed = with_credentials(&sandbox, &format!("list --store {store}"), environment);
        listed
            .fails(5, page)
            .fails(5, "the answer is no list")
            .fails(5, "found \"<!DOCTYPE html>");
    }
    server.misbehave(Fault::Body(CUT), "list-type");
    let listed = with_credentials(&sandbox, "list --store s3://b", &s3.concat());
    listed
        .fails(5, page)
        .fails(5, "expected a NextContinuationToken, found none");
}

#[test]
fn refused_method_is_not_a_missing_object() {
    let sandbox = Sandbox::new();
    sandbox.file("dump", "8d3ebd3654fb46a2832296669cf1b536\n");
    let web = FileServer::serve(sandbox.path());
    web.misbehave(
        Fault::Status("405 Method Not Allowed", "Allow: GET\r\n"),
        "",
    );
    let build = format!("build --store {{}}/s --audience a {}/dump", web.url());
    sandbox
        .run(&build)
        .fails(5, "could not look up dump")
        .fails(5, "refuses HEAD with 405");
    let inspect = format!("inspect --store {} --audience a", web.url());
    sandbox
        .run(&inspect)
        .fails(5, "could not read a/LATEST")
        .fails(5, "refuses GET with 405");
}

/// A command with only these credentials, of those that vendors' tools read.
fn with_credentials(sandbox: &Sandbox, words: &str, environment: &[(&str, &str)]) -> Outcome {
    let mut command = command(sandbox.path(), words);
    for (name, _) in std::env::vars() {
        if ["AWS_", "AZURE_", "GOOGLE_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            command.env_remove(name);
        }
    }
    outcome(spawn(command.envs(environment.iter().copied())))
}
