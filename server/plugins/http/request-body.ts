/** What is refused, and what is let through, of a body before its route sees it. */
import fp from "fastify-plugin";
import { isTooDeep, MAX_JSON_DEPTH } from "../../core/foreign-text.ts";
import { ApiError } from "../../errors.ts";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";

/** Refuses deeply nested bodies on every route, whichever parser read them, before anything looks at them. */
export default fp(
  async (app) => {
    app.addHook("preValidation", (request, _reply, done) => {
      if (!isTooDeep(request.body)) return done();
      return done(
        new ApiError("invalid_json", {
          detail: `The body is nested deeper than ${MAX_JSON_DEPTH} levels.`,
        }),
      );
    });
  },
  { name: "request-body" },
);

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
