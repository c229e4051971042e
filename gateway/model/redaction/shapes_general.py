"""Shapes that belong to no vendor: keys, headers, URLs, hashes and assignments. Owns data only."""

from typing import Final

from gateway.model.redaction.names import NAMED
from gateway.model.redaction.rule import Rule, Tail

NAME: Final = rf"(?P<name>[A-Za-z0-9_\-]{{0,48}}{NAMED}[A-Za-z0-9_\-]{{0,32}})"
_TYPED: Final = r"(?::?\s{1,2}[A-Za-z]{2,16})?"
_SEP: Final = (
    r"""["'\\]{0,4}\]?"""
    + _TYPED
    + r"\s{0,3}(?:=>|:{0,3}={1,3}|!={1,2}|[?.+]=|\|\|:?=|:)\s{0,3}(?:\x1b\[[0-9;]{0,8}m)?"
)

_PLACEHOLDER: Final = (
    r"(?:[xX*.#\-_?]+|#[0-9a-fA-F]{3,8}|(?i:basic|bearer|digest|token|bot) ?|<.*|\$.*|%[a-z({%].*|\{.*|\[.*|@[a-z].*|"
    r"(?i:none|null|nil|true|false|undefined|unset|empty|yes|no|redacted|removed|hidden|masked|required|optional|"
    r"string|str|bytes|int|integer|number|object|bool|boolean|any|self|type|example|sample|dummy|placeholder|"
    r"missing|invalid|expired|not|the|this|that|with|from|your|must|should|and|for|are|was|may|can|has|text|"
    r"your[_\-. ].*|my[_\-][a-z\-_]*|.*changeme.*)[,.:;!]?)"
)
_IDENTIFIER: Final = r"(?:[a-z_]+|_?(?:[A-Z][a-z]{2,})+|[a-z]{2,}(?:[A-Z][a-z]{2,})+|[A-Z_]{2,})[0-9]?"
_CODE: Final = rf"(?:{_IDENTIFIER}(?:(?:\.|::|->){_IDENTIFIER})+|[A-Za-z]+(?:_[A-Za-z]+)+[0-9]?|.*[(\[{{]|0x[0-9a-f]+)"
_ABOUT: Final = r"(?i:passw|pass|pwd|secret|token|key|auth|cookie|cred|value|name|user)"
_UNLESS_BARE: Final = (
    rf"(?:{_PLACEHOLDER}|{_CODE}|[A-Z][A-Z_]*|.{{0,2}}|[0-9.]{{1,3}}|(?:/|\./|~/).*|[A-Za-z]{{1,5}}|"
    rf"[A-Za-z\-]*{_ABOUT}[A-Za-z_\-.]{{0,8}}[0-9]?)"
)
_UNLESS_QUOTED: Final = (
    rf"(?:{_PLACEHOLDER}|[A-Z]?[a-z]{{0,14}}[?!,.:;]?|[A-Za-z_\-.]{{1,5}}|"
    rf"[A-Za-z]+(?:[_\-. :/]{{1,3}}[A-Za-z]+)+[?!.:]?|.{{0,3}}|[A-Za-z_\-.]*{_ABOUT}[A-Za-z_\-.]*|.* .*\{{.*|\s.*)"
)
_WORDY: Final = r"[A-Z]?[a-z]{0,14}[?!,.:;]?"

ASSIGNMENTS = (
    Rule(
        "assignment",
        "values assigned to credential-like names: `password=...`, `API_KEY: ...`, `?access_token=...`",
        r"""[^\s"'`<>\\,;&(){}\[\]|\x1b]{1,64}""",
        Tail.BARE,
        "MAIN_DB_PASSWORD=<mixed:14>",
        "next_token=<mixed:14>",
        lead=NAME + _SEP,
        follow=r"[(\[{]?",
        unless=rf"(?:{_UNLESS_BARE}|{_WORDY})",
    ),
    Rule(
        "assignment-quoted",
        "the same with double quotes, also inside JSON inside a text",
        r"""[^"\\\r\n]{1,64}""",
        Tail.IN_DOUBLE,
        '{"app_client_secret": "<mixed:18>"}',
        '{"token_type": "<mixed:18>"}',
        lead=NAME + _SEP + r"(?:[brfu@]{0,2}\\{0,3}\")",
        unless=_UNLESS_QUOTED,
    ),
    Rule(
        "assignment-single-quoted",
        "the same with single quotes",
        r"""[^'\\\r\n]{1,64}""",
        Tail.IN_SINGLE,
        "'service_api_key': '<mixed:18>'",
        "'key_id': '<mixed:18>'",
        lead=NAME + _SEP + r"(?:[brfu@]{0,2}\\{0,3}')",
        unless=_UNLESS_QUOTED,
    ),
    Rule(
        "assignment-backquoted",
        "the same with back quotes",
        r"[^`\\\r\n]{1,64}",
        Tail.IN_BACK,
        "appToken := `<mixed:18>`",
        "tokenType := `<mixed:18>`",
        lead=NAME + _SEP + "`",
        unless=_UNLESS_QUOTED,
    ),
    Rule(
        "argument",
        'values passed beside a credential-like name: `set("API_KEY", "...")`',
        r"[A-Za-z0-9+/=_.:~@\-]{10,64}",
        Tail.BASE64,
        'System.setProperty("APP_TOKEN", "<alnum:24>")',
        'System.setProperty("APP_TOKEN_TYPE", "<alnum:24>")',
        lead=NAME + r"""\\{0,3}["']\s?,\s{1,3}\\{0,3}["']""",
        unless=rf"(?:{_UNLESS_QUOTED}|[A-Za-z_\-.:/]*[0-9]?)",
    ),
    Rule(
        "option",
        "values of credential-like options of commands: `--password ...`",
        r"""[^\s"'`<>\\,;&(){}\[\]|\x1b]{1,64}""",
        Tail.BARE,
        "deploy --registry-api-key <alnum:20> now",
        "deploy --api-key-file <alnum:20> now",
        lead=rf"--{NAME}\s{{1,3}}[\"']?",
        follow=r"[(\[{]?",
        unless=rf"(?:{_UNLESS_BARE}|{_WORDY}|-.*|[a-z]{{1,12}})",
        edge=False,
    ),
    Rule(
        "element",
        "the text of credential-like XML elements",
        r"[^\s<>][^<>\r\n]{0,200}",
        Tail.NONE,
        "<|dbPassword><mixed:14></dbPassword>",
        "<|tokenCount><mixed:14></tokenCount>",
        lead=rf"<{NAME}>\s{{0,16}}",
        follow=r"\s{0,16}</",
        unless=rf"(?:{_PLACEHOLDER}|{_WORDY}|[A-Za-z]+(?:[_\-. ][A-Za-z]+)+|.{{0,3}})\s*</",
        edge=False,
    ),
)

GENERAL = (
    Rule(
        "private-key",
        "private keys: PEM, OpenSSH, PGP and SSH2 blocks, whole or cut off",
        r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}(?:\s|\\{1,3}[nr]){0,40}"
        r"(?:[A-Za-z0-9+/=]{16}|Proc-Type:|DEK-Info:|Version:|Comment:|Charset:|Hash:|Subject:)",
        Tail.PEM,
        "-----BE|GIN RSA PRIVATE KEY-----<nl><b64:64><nl><b64:64><nl>-----END RSA PRIVATE KEY-----",
        "-----BE|GIN PUBLIC KEY-----<nl><b64:64><nl>-----END PUBLIC KEY-----",
        edge=False,
    ),
    Rule(
        "putty-key",
        "private lines of PuTTY keys",
        r"[A-Za-z0-9+/=]{32}",
        Tail.PEM,
        "Private-Lines: 8<nl><b64:64><nl><b64:40>==<nl>",
        "Public-Lines: 8<nl><b64:64><nl>",
        lead=r"Private-Lines: [0-9]{1,3}(?:\s|\\{1,3}[nr]){1,4}",
    ),
    Rule(
        "age-key",
        "age secret keys",
        r"AGE-SECRET-KEY-1[A-Z0-9]{50}",
        Tail.WORD,
        "AGE-SECRET-|KEY-1<bech:58>",
        "AGE-SECRET-|KEY-1<bech:9>",
    ),
    Rule(
        "jwt",
        "JSON Web Tokens, signed",
        r"e(?:yJ|yA|yI|wo|w0|wk)[A-Za-z0-9_\-]{8,1000}\.e(?:yJ|yA|yI|wo|w0|wk)[A-Za-z0-9_\-]{4}",
        Tail.DOTTED,
        "<json64:20>.<json64:40>.<url:43>",
        "<json64:20>",
    ),
    Rule(
        "jwt-base64",
        "JSON Web Tokens, encoded once more",
        r"ZXlK[A-Za-z0-9+/_\-]{60}",
        Tail.BASE64,
        "ZX|lK<b64:120>",
        "ZX|lK<b64:9>",
    ),
    Rule(
        "jwe",
        "JSON Web Tokens, encrypted",
        r"eyJ[A-Za-z0-9_\-]{16,1000}\.[A-Za-z0-9_\-]{0,800}\.[A-Za-z0-9_\-]{12,80}\.[A-Za-z0-9_\-]{8}",
        Tail.DOTTED,
        "<json64:30>.<url:60>.<url:16>.<url:80>.<url:22>",
        "<json64:30>..",
    ),
    Rule(
        "authorization-header",
        "credentials of an Authorization header, with any scheme",
        r"[A-Za-z0-9._~+/=:\-]{1,64}",
        Tail.ESCAPED,
        "Authorization: Token <alnum:20>",
        "Authorization: Bearer <",
        lead=r"""(?i:authorization)["'\\]{0,4}\]?\s{0,3}[:=]\s{0,3}["'\\]{0,4}"""
        r"(?i:bearer|basic|token|digest|negotiate|apikey|api-key|ssws|bot|key|splunk|ntlm|oauth|dpop|hmac)\s{1,3}",
        unless=r"(?:(?i:token|header|auth|authentication|authorization|scheme|key|credentials?|is|and|or|the|"
        r"your[_\-].*|x+|\.+|username.*)[,.:]?)",
    ),
    Rule(
        "authorization-scheme",
        "credentials of an Authorization header with a scheme of its own",
        r"[A-Za-z0-9._~+/=:\-]{8,64}",
        Tail.ESCAPED,
        "Authorization: Custom-Scheme <alnum:24>",
        "Authorization: see the documentation",
        # Whoever hides things before us may take the scheme for the credential and leave what stands behind it.
        lead=r"""(?i:authorization)["'\\]{0,4}\]?\s{0,3}[:=]\s{0,3}["'\\]{0,4}(?:[A-Za-z][A-Za-z0-9_\-]{1,24}\s{1,3}|"""
        r"(?:<(?i:redacted|hidden|masked)>|\[(?i:redacted|hidden|masked)\]|\*{3,16})[ \t]{1,3})",
        unless=r"(?:[A-Za-z][a-z_\-./]*|[A-Z][A-Z_\-.]*|(?:[A-Z][a-z]+-?)+)[,.:;]?",
    ),
    Rule(
        "signed-header",
        "signatures of signed Authorization headers",
        r"[A-Za-z0-9+/=%]{20}",
        Tail.ESCAPED,
        "AWS4-HMAC-SHA256 Credential=abc, SignedHeaders=host, Signature=<hex:64>",
        "the Signature=none case",
        lead=r"(?i:x-amz-signature|x-goog-signature|signature)=\"?",
    ),
    Rule(
        "bearer",
        "bearer tokens anywhere",
        r"[A-Za-z0-9._~+/=\-]{8,64}",
        Tail.ESCAPED,
        "sent Bearer <alnum:24> to it",
        "the bearer authentication scheme",
        lead=r"(?i:bearer)(?:\s|%20|\+|:\s?|\\t){1,3}",
        unless=r"(?:[A-Za-z][a-z_\-.]*|[A-Z][A-Z_\-.]*|[A-Za-z]+(?:[._\-/][A-Za-z]+)+|\.+.*|[A-Z][a-z]+[A-Z][a-z]+)[,.:;]?",
    ),
    Rule(
        "basic-auth",
        "HTTP basic credentials",
        r"[A-Za-z0-9+/]{12,64}={0,2}",
        Tail.BASE64,
        "Basic <alnum:22>==",
        "Basic authentication is used",
        lead=r"(?i:basic)(?:\s|%20){1,2}",
        unless=r"(?:[A-Za-z][a-z/]*|[A-Z]+|(?:[A-Z]?[a-z]+)+|[a-z]+[0-9]?(?:/[a-z0-9]+)+)",
    ),
    Rule(
        "cookie-header",
        "Cookie and Set-Cookie headers",
        r"[!#$%&*+.^_|~0-9A-Za-z\-]{1,64}=[^\s;\"'\\<>{}()]{4}",
        Tail.HEADER,
        "Cookie: sid=<alnum:24>; theme=dark",
        "Cookie: none",
        lead=r"""(?i:(?:set-)?cookie2?)["'\\]{0,3}\s{0,2}:\s{0,2}["'\\]{0,3}""",
    ),
    Rule(
        "url-password",
        "passwords in URLs and connection strings",
        r"""[^\s/"'<>\\`]{1,300}""",
        Tail.NONE,
        "postgresql://app:<alnum:16>@db.example.org:5432/x",
        "postgresql://db.example.org:5432/x",
        lead=r"[A-Za-z][A-Za-z0-9+.\-]{1,24}://[^\s/:@\"'<>?#\\`]{0,100}:",
        follow=r"@",
        unless=r"(?:(?i:x+|\*+|\.+|example)|.*[{<$%(\[].*|[0-9]{2,5},.*)@",
    ),
    Rule(
        "curl-user",
        "user and password given to a command with `-u`",
        r"""[^\s"'\\]{3,64}""",
        Tail.IN_URL,
        "curl -u admin:<alnum:14> https://example.org",
        "docker run -u 1000:1000 image",
        lead=r"""\s(?:-u|--user)[ =]{1,2}["']?[A-Za-z0-9_.@\-]{1,64}:""",
        unless=r"(?:[0-9]+|[\$<{%].*|(?i:password|pass|passwd|pw|secret|token)[>}]?|[a-z]+)",
        edge=False,
    ),
    Rule(
        "netrc",
        "passwords of netrc files",
        r"\S{1,10}",
        Tail.HEADER,
        "machine example.org login me password <alnum:14>",
        "machine example.org login me",
        lead=r"machine\s{1,3}\S{1,100}\s{1,5}login\s{1,3}\S{1,100}\s{1,5}password\s{1,3}",
        unless=r"\[redacted:",
    ),
    Rule(
        "docker-auth",
        "registry credentials of container tools",
        r"[A-Za-z0-9+/]{12}",
        Tail.BASE64,
        '{"auths":{"r.example.org":{"auth":"<alnum:32>="}}}',
        '{"auth": "none"}',
        lead=r"""\\{0,3}"auth\\{0,3}"\s{0,3}:\s{0,3}\\{0,3}\"""",
        edge=False,
    ),
    Rule(
        "password-hash",
        "password hashes: bcrypt, crypt, argon2, scrypt",
        r"\$(?:2[abxy]\$[0-9]{2}\$[./A-Za-z0-9]{40}|[1567y]\$[./A-Za-z0-9=$,]{1,60}\$[./A-Za-z0-9]{20}"
        r"|argon2(?:id|i|d)\$[A-Za-z0-9=,$]{4,60}\$[A-Za-z0-9+/]{8,60}\$[A-Za-z0-9+/]{16}|scrypt\$[A-Za-z0-9=,$+/]{30})",
        Tail.BASE64,
        "root:$2|b$12$<alnum:53>",
        "costs $2|b$ and more",
        edge=False,
    ),
)
