import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";

/**
 * Clients that always send `Content-Type: application/json` also do so with a DELETE or a POST that
 * has no body. In this scope that is no body, and the route's own schema says whether it needs one.
 */
export function acceptEmptyJson(app: Parameters<FastifyPluginAsyncTypebox>[0]): void {
  const parseJson = app.getDefaultJsonParser("error", "error");
  app.removeContentTypeParser("application/json");
  app.addContentTypeParser("application/json", { parseAs: "string" }, (request, body, done) => {
    if (body === "") done(null, undefined);
    else void parseJson(request, body as string, done);
  });
}
