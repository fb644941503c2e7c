/**
 * The parts of undici that a start needs. All of it, with fetch, cookies and WebSockets and Node's own copy of these,
 * takes a twelfth of the start; code that opens a WebSocket loads it later.
 */
import apiRequest from "undici/lib/api/api-request.js";
import buildConnector from "undici/lib/core/connect.js";
import Agent from "undici/lib/dispatcher/agent.js";
import type { Dispatcher } from "undici";

export { Agent, buildConnector };

/** The same as `agent.request`, which only the whole of undici adds to its agents. */
export const request = (
  agent: Agent,
  options: Dispatcher.RequestOptions,
): Promise<Dispatcher.ResponseData> => apiRequest.call(agent, options);
