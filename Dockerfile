# The environments behind HTTP: docs/guides/server.md. Run it with -e HGPO_GYM_SERVER_TOKEN=..., 16 characters or more.
FROM python:3.12-slim
COPY . /src
RUN pip install --no-cache-dir "/src[server,webshop]" && useradd player
USER player
EXPOSE 8000
CMD ["hgpo-gym", "serve", "--host", "0.0.0.0", \
     "--env", "hgpo_gym/WebShop-v0", "split=generated"]
