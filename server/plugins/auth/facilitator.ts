import { createHash, timingSafeEqual } from "node:crypto";
import fp from "fastify-plugin";
import { ApiError } from "../../errors.ts";

/** Paid APIs: open to all unless FACILITATOR_API_KEYS is set; then a Bearer key is needed. */
export default fp(
  async (app) => {
    const digests = app.config.facilitatorApiKeys.map(digest);
    app.authenticators.set("facilitator", async (request) => {
      if (digests.length === 0) return;
      const [, key] = /^Bearer ([^\s]+)$/i.exec(request.headers.authorization ?? "") ?? [];
      const challenge = { headers: { "www-authenticate": 'Bearer realm="purser facilitator"' } };
      if (key === undefined)
        throw new ApiError("missing_api_key", {
          ...challenge,
          detail: "This facilitator needs `Authorization: Bearer <FACILITATOR_API_KEY>`.",
        });
      const given = digest(key);
      // All are compared, in constant time each: the answer's time tells nothing of a near miss.
      const known = digests.filter((candidate) => timingSafeEqual(candidate, given)).length > 0;
      if (!known) throw new ApiError("invalid_api_key", challenge);
    });
  },
  { name: "auth-facilitator" },
);

const digest = (text: string): Buffer => createHash("sha256").update(text).digest();
