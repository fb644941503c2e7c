/**
 * In local mode whoever reaches the port is trusted with toys, so a page of somebody else must not reach it: it could
 * make its own name point here (DNS rebinding), and its browser would call that the same origin. The name it was
 * called by is what gives it away.
 */
import fp from "fastify-plugin";
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
      if (mode !== "local") return done();
      const name = hostNameOf(host ?? "");
      if (name !== undefined && (name === ownName || isLoopbackHost(name))) return done();
      throw new ApiError("host_not_allowed", {
        detail: `This service runs on this machine only, and answers to localhost and ${ownName}.`,
      });
    });
  },
  { name: "own-host" },
);

/** The name alone; undefined for what is no `host[:port]`. */
function hostNameOf(host: string): string | undefined {
  const [, name] = /^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?$/.exec(host) ?? [];
  return name?.toLowerCase();
}
