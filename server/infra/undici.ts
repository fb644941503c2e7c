/**
 * What of undici a start needs. The whole of it, with fetch, cookies and WebSockets and with Node's own copy of these, is a
 * twelfth of a start; whoever opens a WebSocket loads it then.
 */
import apiRequest from "undici/lib/api/api-request.js";
import buildConnector from "undici/lib/core/connect.js";
import Agent from "undici/lib/dispatcher/agent.js";
import type { Dispatcher } from "undici";

export { Agent, buildConnector };

/** As `agent.request` does, which the whole of undici adds to its agents. */
export const request = (
  agent: Agent,
  options: Dispatcher.RequestOptions,
): Promise<Dispatcher.ResponseData> => apiRequest.call(agent, options);
