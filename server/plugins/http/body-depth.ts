import fp from "fastify-plugin";
import { isTooDeep, MAX_JSON_DEPTH } from "../../core/json.ts";
import { ApiError } from "../../errors.ts";

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
  { name: "body-depth" },
);
