// An authorization server on loopback: `node authorization_server.mjs NODE_MODULES`. Its first line says where it is.
//
// Logins answer themselves: the user is `login_hint`, else the one that /admin/user has set; "nobody" refuses.
// GET /admin/NAME?value=… changes `user`, `signing` (a key's id), `published` (ids of keys), `ttl` (seconds of
// access tokens), `opaque` (yes or no) and answers with the whole state, in which `seen` has every request.
// It ends when its input does, so that it never outlives whoever started it.
import { createServer } from 'node:http';
import { generateKeyPairSync } from 'node:crypto';
import { pathToFileURL } from 'node:url';

process.stdin.on('end', () => process.exit()).resume();

const modules = pathToFileURL(`${process.argv[2]}/`).href;
const { Provider, errors } = await import(`${modules}oidc-provider/lib/index.js`);
const { createLocalJWKSet, jwtVerify } = await import(`${modules}jose/dist/webapi/index.js`);

const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
const SCOPES = ['tools:read', 'tools:write', 'admin'];
const EVERY_SCOPE = ['openid', 'offline_access', ...SCOPES].join(' ');
const state = { user: 'alice', signing: 'k1', published: ['k1'], ttl: 300, opaque: 'no', seen: [] };

function signingKey(kid) {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  return { ...privateKey.export({ format: 'jwk' }), kid, alg: 'RS256', use: 'sig' };
}
const keys = [signingKey('k1'), signingKey('k2')];
const publicKeys = { keys: keys.map(({ kty, n, e, kid, alg }) => ({ kty, n, e, kid, alg })) };

const http = createServer();
await new Promise((listening) => http.listen(0, '127.0.0.1', listening));
const issuer = `http://127.0.0.1:${http.address().port}`;

const resourceServer = (indicator) => ({
  scope: SCOPES.join(' '),
  audience: indicator,
  accessTokenTTL: state.ttl,
  ...(state.opaque === 'yes'
    ? { accessTokenFormat: 'opaque' }
    : { accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256', kid: state.signing } } }),
});

const provider = new Provider(issuer, {
  jwks: { keys },
  clients: [
    {
      client_id: 'machine',
      client_secret: 'the-secret-of-the-machine',
      grant_types: ['client_credentials', EXCHANGE],
      redirect_uris: [],
      response_types: [],
    },
    {
      client_id: 'desk',
      token_endpoint_auth_method: 'none',
      application_type: 'native',
      grant_types: ['authorization_code', 'refresh_token'],
      redirect_uris: ['http://127.0.0.1/callback'],
    },
  ],
  scopes: EVERY_SCOPE.split(' '),
  features: {
    devInteractions: { enabled: false },
    clientCredentials: { enabled: true },
    registration: { enabled: true },
    introspection: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      defaultResource: (ctx, client, oneOf) => oneOf,
      getResourceServerInfo: (ctx, indicator) => resourceServer(indicator),
    },
  },
  pkce: { required: () => true },
  issueRefreshToken: (ctx, client) => client.grantTypeAllowed('refresh_token'),
  rotateRefreshToken: true,
  ttl: {
    AccessToken: () => state.ttl,
    ClientCredentials: () => state.ttl,
    AuthorizationCode: 60,
    Grant: 3600,
    IdToken: 300,
    Interaction: 60,
    RefreshToken: 3600,
    Session: 3600,
  },
  findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  interactions: { url: (ctx, interaction) => `/interaction/${interaction.uid}` },
  cookies: { keys: ['loopback'] },
});

async function answerLogin(ctx) {
  const { params } = await provider.interactionDetails(ctx.req, ctx.res);
  const accountId = params.login_hint ?? state.user;
  let result = { error: 'access_denied', error_description: 'the user refused' };
  if (accountId !== 'nobody') {
    const grant = new provider.Grant({ accountId, clientId: params.client_id });
    // A scope that is not granted as one of OpenID too is asked for again and again.
    grant.addOIDCScope(EVERY_SCOPE);
    for (const each of [params.resource ?? []].flat()) grant.addResourceScope(each, params.scope ?? SCOPES.join(' '));
    result = { login: { accountId }, consent: { grantId: await grant.save() } };
  }
  ctx.redirect(await provider.interactionResult(ctx.req, ctx.res, result, { mergeWithLastSubmission: false }));
}

function administer(ctx) {
  const name = ctx.path.slice('/admin/'.length);
  const { value } = ctx.query;
  if (value !== undefined) {
    state[name] = name === 'published' ? value.split(',') : name === 'ttl' ? Number(value) : value;
  }
  ctx.body = state;
}

provider.use(async (ctx, next) => {
  if (ctx.path.startsWith('/admin/')) return administer(ctx);
  state.seen.push(`${ctx.method} ${ctx.path}`);
  if (ctx.path.startsWith('/interaction/')) return answerLogin(ctx);
  if (ctx.path === '/.well-known/oauth-authorization-server') ctx.path = '/.well-known/openid-configuration';
  await next();
  if (ctx.path === '/jwks') ctx.body = { keys: ctx.body.keys.filter((key) => state.published.includes(key.kid)) };
});

const EXCHANGED = ['subject_token', 'subject_token_type', 'requested_token_type', 'actor_token', 'actor_token_type'];

// RFC 8693: an access token of this server for another resource, for the same user.
async function exchange(ctx) {
  const { params, client } = ctx.oidc;
  const { payload } = await jwtVerify(params.subject_token, createLocalJWKSet(publicKeys), { issuer }).catch((fault) => {
    throw new errors.InvalidGrant('the subject token is invalid', fault.message);
  });
  const indicator = params.resource ?? params.audience;
  const scope = params.scope ?? payload.scope;
  const grant = new provider.Grant({ accountId: payload.sub, clientId: client.clientId });
  grant.addResourceScope(indicator, scope);
  const token = new provider.AccessToken({ client, accountId: payload.sub, scope, gty: 'token_exchange' });
  token.grantId = await grant.save();
  token.resourceServer = new provider.ResourceServer(indicator, resourceServer(indicator));
  ctx.body = {
    access_token: await token.save(),
    issued_token_type: 'urn:ietf:params:oauth:token-type:access_token',
    token_type: 'Bearer',
    expires_in: state.ttl,
    scope,
  };
}
provider.registerGrantType(EXCHANGE, exchange, [...EXCHANGED, 'audience', 'resource', 'scope'], []);

provider.on('grant.error', (ctx, fault) => console.error('grant.error', fault.error_detail ?? fault.message));
provider.on('server_error', (ctx, fault) => console.error(fault));
http.on('request', provider.callback());
console.log(`authorization server at ${issuer}`);
