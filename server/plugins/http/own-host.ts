/**
 * In local mode whoever reaches the port is trusted with toys, so a page of somebody else must not reach it: it could
 * make its own name point here (DNS rebinding), and its browser would call that the same origin. The name it was
 * called by is what gives it away.
 */
import fp from "fastify-plugin";
import { readHostName } from "../../../packages/paywall/src/host.ts";
import { isLoopbackHost } from "../../core/client-address.ts";
import { ApiError } from "../../errors.ts";

export default fp(
  async (app) => {
    const { mode, publicUrl } = app.config;
    const ownName = new URL(publicUrl).hostname;
    app.addHook("onRequest", (request, _reply, done) => {
      const { host } = request.headers;
      // Node refuses it with no body; HTTP/1.0 may leave it out.
      if (host === undefined && request.raw.httpVersion === "1.1")
        throw new ApiError("bad_request", { detail: "The request has no Host header." });
      const name = readHostName(host ?? "");
      if (mode !== "local") {
        if (host !== undefined && name === undefined)
          throw new ApiError("bad_request", {
            detail: "The Host header must be a host with an optional port.",
          });
        return done();
      }
      if (name !== undefined && (name === ownName || isLoopbackHost(name))) return done();
      throw new ApiError("host_not_allowed", {
        detail: `This service runs on this machine only. Call it as localhost or ${ownName}.`,
      });
    });
  },
  { name: "own-host" },
);
