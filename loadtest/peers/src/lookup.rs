//! Services with ids in Redis, which rtad replaces: one lookup per request, over one shared
//! connection.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, RedisError};

use crate::bloom::Bloom;

/// The key of the bitmap.
const BITMAP: &str = "bloom";

/// Serves with one key per id.
pub(crate) async fn serve_exists(port: u16) -> crate::Outcome {
    let exists =
        async |State(mut redis): State<MultiplexedConnection>,
               Path((_, id)): Path<(String, String)>| { answer(redis.exists(id).await) };
    let route = Router::new().route("/v1/check/{audience}/{id}", get(exists));
    crate::serve(route.with_state(connect(port).await?)).await
}

/// Serves with a Bloom filter. All bits of an id are read in one pipeline. Reading them one by one
/// would be cheaper for non-members, but take a round trip per bit for members.
pub(crate) async fn serve_bloom(port: u16, ids: u64) -> crate::Outcome {
    let bloom = Bloom::of(ids);
    let test = async move |State(mut redis): State<MultiplexedConnection>,
                           Path((_, id)): Path<(String, String)>| {
        let Some(offsets) = bloom.bit_offsets(&id) else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        let mut pipeline = redis::pipe();
        for offset in offsets {
            pipeline.cmd("GETBIT").arg(BITMAP).arg(offset);
        }
        let bits: Result<Vec<bool>, RedisError> = pipeline.query_async(&mut redis).await;
        answer(bits.map(|bits| bits.into_iter().all(|bit| bit)))
    };
    let route = Router::new().route("/v1/check/{audience}/{id}", get(test));
    crate::serve(route.with_state(connect(port).await?)).await
}

async fn connect(port: u16) -> Result<MultiplexedConnection, RedisError> {
    redis::Client::open(("127.0.0.1", port))?
        .get_multiplexed_async_connection()
        .await
}

/// The answer of rtad, byte for byte.
fn answer(member: Result<bool, RedisError>) -> Response {
    let Ok(member) = member else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    let mut response = Response::new(
        if member {
            r#"{"member":true}"#
        } else {
            r#"{"member":false}"#
        }
        .into(),
    );
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
