//! The services that rtad stands in for: the ids are in Redis, and each request asks it, over one connection that all share.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, RedisError};

use crate::bloom::Bloom;

/// The key that the bitmap is at.
const BITMAP: &str = "bloom";

/// Every id is a key.
pub(crate) async fn serve_exists(port: u16) -> crate::Outcome {
    let exists =
        async |State(mut redis): State<MultiplexedConnection>,
               Path((_, id)): Path<(String, String)>| { said(redis.exists(id).await) };
    let route = Router::new().route("/v1/check/{audience}/{id}", get(exists));
    crate::serve(route.with_state(connect(port).await?)).await
}

/// The ids are bits. All bits of an id are asked for in one go: one after the other would be cheaper for strangers, and as many
/// round trips for members.
pub(crate) async fn serve_bloom(port: u16, ids: u64) -> crate::Outcome {
    let bloom = Bloom::of(ids);
    let test = async move |State(mut redis): State<MultiplexedConnection>,
                           Path((_, id)): Path<(String, String)>| {
        let Some(places) = bloom.places(&id) else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        let mut asked = redis::pipe();
        for place in places {
            asked.cmd("GETBIT").arg(BITMAP).arg(place);
        }
        let bits: Result<Vec<bool>, RedisError> = asked.query_async(&mut redis).await;
        said(bits.map(|bits| bits.into_iter().all(|bit| bit)))
    };
    let route = Router::new().route("/v1/check/{audience}/{id}", get(test));
    crate::serve(route.with_state(connect(port).await?)).await
}

async fn connect(port: u16) -> Result<MultiplexedConnection, RedisError> {
    redis::Client::open(("127.0.0.1", port))?.get_multiplexed_async_connection().await
}

/// rtad's answer, byte for byte.
fn said(member: Result<bool, RedisError>) -> Response {
    let Ok(member) = member else { return StatusCode::BAD_GATEWAY.into_response() };
    let mut response =
        Response::new(if member { r#"{"member":true}"# } else { r#"{"member":false}"# }.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
