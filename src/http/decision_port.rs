//! Routes of the decision port.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use rtad_http::timing::Arrival;

use super::decision_app::App;
pub use super::platforms::{PlatformService, Port};
use super::{check, decide};

/// The service of one worker: platforms' paths first, then rtad's own routes. Each worker has its
/// own router and [`App`].
pub fn decision_service(app: App, port: Port) -> PlatformService {
    let app = Arc::new(app);
    PlatformService::new(Arc::clone(&app), router(app), port)
}

fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/check/{audience}/{id}", only(get(check::one), "GET, HEAD"))
        .route("/v1/check/{audience}", only(post(check::many), "POST"))
        .route("/v1/decide", only(post(decide::decide), "POST"))
        .fallback(async |State(app): State<Arc<App>>, arrival: Arrival| app.no_route(arrival).await)
        .with_state(app)
}

/// The route; other methods than `allowed` get a counted problem document.
fn only(route: MethodRouter<Arc<App>>, allowed: &'static str) -> MethodRouter<Arc<App>> {
    route.fallback(async move |State(app): State<Arc<App>>, arrival: Arrival| -> Response {
        app.wrong_method(arrival, allowed).await
    })
}
