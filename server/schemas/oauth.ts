/** Wire types of OAuth: its documents and endpoints, and the web app's consent requests. */
import { Type, type Static } from "typebox";
import { Nullable, Page, Strict, ThirdParty, Timestamp } from "./common.ts";
import { KeyAuthorization } from "./orders.ts";

const Texts = Type.Array(Type.String());

export const ProtectedResource = Type.Object({
  resource: Type.String(),
  authorization_servers: Texts,
  scopes_supported: Texts,
  bearer_methods_supported: Texts,
  resource_name: Type.String(),
  resource_documentation: Type.String(),
});

export const AuthorizationServer = Type.Object({
  issuer: Type.String(),
  authorization_endpoint: Type.String(),
  token_endpoint: Type.String(),
  registration_endpoint: Type.String(),
  revocation_endpoint: Type.String(),
  response_types_supported: Texts,
  response_modes_supported: Texts,
  grant_types_supported: Texts,
  code_challenge_methods_supported: Texts,
  token_endpoint_auth_methods_supported: Texts,
  revocation_endpoint_auth_methods_supported: Texts,
  scopes_supported: Texts,
  authorization_response_iss_parameter_supported: Type.Boolean(),
  client_id_metadata_document_supported: Type.Boolean(),
  protected_resources: Texts,
  service_documentation: Type.String(),
});

/** Errors of the endpoints that OAuth clients call (RFC 6749 section 5.2). */
export const OauthProblem = Type.Object(
  { error: Type.String(), error_description: Type.String() },
  { description: "An OAuth error (RFC 6749 section 5.2)" },
);

/** Client registration (RFC 7591). Other members are ignored, as the RFC requires. */
export const RegistrationBody = Type.Object(
  {
    redirect_uris: Type.Optional(
      Type.Unknown({ description: "1 to 10 addresses to send back to" }),
    ),
    client_name: Type.Optional(Type.Unknown({ description: "Shown to the owner" })),
    grant_types: Type.Optional(Type.Unknown()),
    response_types: Type.Optional(Type.Unknown()),
    token_endpoint_auth_method: Type.Optional(
      Type.Unknown({ description: "Always none: the program is authenticated by PKCE" }),
    ),
  },
  { additionalProperties: true },
);
export const Registered = Type.Object({
  client_id: Type.String(),
  client_id_issued_at: Type.Integer(),
  client_name: Type.String(),
  redirect_uris: Texts,
  grant_types: Texts,
  response_types: Texts,
  token_endpoint_auth_method: Type.Literal("none"),
  scope: Type.String(),
});

const Parameter = Type.Optional(Type.String({ maxLength: 2_000 }));
export const TokenBody = Type.Object(
  {
    grant_type: Parameter,
    code: Parameter,
    redirect_uri: Parameter,
    client_id: Parameter,
    code_verifier: Parameter,
    refresh_token: Parameter,
    resource: Parameter,
    scope: Parameter,
  },
  { additionalProperties: true, description: "application/x-www-form-urlencoded" },
);
export const TokenAnswer = Type.Object({
  access_token: Type.String(),
  token_type: Type.Literal("Bearer"),
  expires_in: Type.Integer(),
  refresh_token: Type.String(),
  scope: Type.String(),
});
export const RevokeBody = Type.Object(
  { token: Parameter, token_type_hint: Parameter, client_id: Parameter },
  { additionalProperties: true, description: "application/x-www-form-urlencoded" },
);
export const Revoked = Type.Object({});

/** The parameters of /oauth/authorize, unchanged from the client. Unknown ones are ignored. */
export const AskConsentBody = Type.Object(
  {
    client_id: Parameter,
    redirect_uri: Parameter,
    response_type: Parameter,
    code_challenge: Parameter,
    code_challenge_method: Parameter,
    state: Parameter,
    scope: Parameter,
    resource: Parameter,
  },
  { additionalProperties: true },
);
export const ConsentRequest = Type.Object({
  id: Type.String(),
  thirdParty: ThirdParty({
    name: Type.String({ description: "The name that the program gives itself" }),
    redirectUri: Type.String(),
  }),
  place: Type.String({
    description: "Where the browser returns to: a host, this computer, or an app",
  }),
  describedAt: Nullable(
    Type.String({ description: "The host that publishes the program's description, if one does" }),
  ),
  label: Type.String({ description: "The text shown in the owner's wallet" }),
  keyExpiresAt: Timestamp,
  expiresAt: Timestamp,
});
export type ConsentRequest = Static<typeof ConsentRequest>;

export const AllowBody = Strict({
  agentId: Type.String({ minLength: 1, maxLength: 64 }),
  authorization: KeyAuthorization,
});
export const Answered = Type.Object({
  redirectTo: Type.String({ description: "Where to send the browser now" }),
});

export const Connection = Type.Object({
  id: Type.String({ description: "The id of the connection's key, as named in payments" }),
  label: Type.String(),
  clientId: Type.String(),
  thirdParty: ThirdParty({ name: Type.String() }),
  place: Type.String(),
  createdAt: Timestamp,
  expiresAt: Nullable(Timestamp),
  lastUsedAt: Nullable(Timestamp),
  revokedAt: Nullable(Timestamp),
  status: Type.Enum(["active", "expired", "revoked"]),
});
export type Connection = Static<typeof Connection>;
export const ConnectionPage = Page(Connection);
export const ConnectionParams = Strict({
  id: Type.String({ minLength: 1, maxLength: 64 }),
  connectionId: Type.String({ minLength: 1, maxLength: 64 }),
});
export const RevokedConnection = Type.Object({ connection: Connection });
